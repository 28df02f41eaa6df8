"""The executor's end of its connection to the worker: whole messages over a blocking socket."""

import select
import socket
from collections.abc import Mapping
from typing import Any

from readie_wire.framing import (
    Decoder,
    FrameType,
    Message,
    ProtocolError,
    encode_header,
    encode_message,
)

READ_BYTES = 256 << 10  # one receive; a CALL of a megabyte then takes a handful of system calls
WRITE_BYTES = 256 << 10  # frames are joined up to this, so a small answer is a single packet


class ConnectionEndedError(Exception):
    """The worker closed its end: there is nobody left to work for."""


class Channel:
    """Sends and receives messages in turn. Not for use from two threads."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._decoder = Decoder()
        self._waiting: list[Message] = []

    def send(
        self,
        frame_type: FrameType,
        header: Mapping[str, Any] | None = None,
        body: bytes | memoryview | None = None,
    ) -> None:
        """Write one message. Raises `OSError` when the worker is gone."""
        pending: list[bytes] = []
        size = 0
        for frame in encode_message(frame_type, header, body):
            pending.append(frame)
            size += len(frame)
            if size >= WRITE_BYTES:
                self._connection.sendall(b"".join(pending))
                pending, size = [], 0
        self._connection.sendall(b"".join(pending))

    def announce(self, *frame_types: FrameType) -> None:
        """Write messages that are their type and nothing else, as one packet."""
        self._connection.sendall(b"".join(map(encode_header, frame_types)))

    @property
    def next_type(self) -> FrameType | None:
        """What `receive` gives next, where that has arrived with the message before it."""
        return self._waiting[0].type if self._waiting else None

    def receive(self) -> Message:
        """The next message. Raises `ConnectionEndedError` at the end of the stream."""
        while not self._waiting:
            data = self._connection.recv(READ_BYTES)
            if not data:
                raise ConnectionEndedError
            self._waiting = self._decoder.feed(data)
        return self._waiting.pop(0)

    def quiet_for(self, seconds: float) -> bool:
        """Whether nothing arrives for so long; the end of the stream counts as an arrival."""
        return not select.select([self._connection.fileno()], [], [], seconds)[0]

    def expect(self, frame_type: FrameType) -> Message:
        """The next message, which must be of this type; PING may come in between.

        Raises `ProtocolError` for any other type, CANCEL and BYE end the connection.
        """
        while True:
            message = self.receive()
            if message.type is frame_type:
                return message
            if message.type in (FrameType.CANCEL, FrameType.BYE):
                raise ConnectionEndedError
            if message.type is not FrameType.PING:
                raise ProtocolError(f"expected {frame_type.name}, got {message.type.name}")

    def close(self) -> None:
        self._connection.close()
