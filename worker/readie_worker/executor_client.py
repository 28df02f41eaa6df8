"""The worker's side of the executor protocol over one sandbox's connection.

What a sandbox sends is hostile input: types, order and sizes are checked, and a sandbox that breaks
the protocol is treated as one that is gone.
"""

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from readie_wire.framing import (
    Decoder,
    FrameType,
    Message,
    ProtocolError,
    encode_header,
    encode_message,
)
from readie_wire.versions import READABLE_PROTOCOLS
from readie_worker.errors import NotStartedError

ONE_WRITE_BYTES = 512 * 1024  # a call up to this goes out in one write, with GO when it may start
SLOWEST_BYTES_PER_S = 10 << 20  # far below what a sandbox's socket moves
_GO = encode_header(FrameType.GO)
_ENDINGS = frozenset({FrameType.RESULT, FrameType.ERROR})


@dataclass(frozen=True, slots=True)
class Hello:
    """How an executor introduced itself."""

    protocol: int
    python: str
    pid: int


class ExecutorConnection(asyncio.Protocol):
    """Messages of one call: HELLO, then CALL → READY → GO → STARTED → RESULT or ERROR.

    A session's calls follow one another, each from CALL on, after `renew`.

    `started` and `ended` are facts that arrive by themselves: the loop decodes frames as they come.
    ``ended`` resolves to the closing message, or to None when the connection ended without one;
    `problem` then says how. It never raises.
    """

    def __init__(self, max_body: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder(max_body)
        self._transport: asyncio.Transport | None = None
        self._writable: asyncio.Future[None] | None = None
        self._hello: asyncio.Future[Message | None] = self._loop.create_future()
        self._ready: asyncio.Future[Message | None] = self._loop.create_future()
        self.ended: asyncio.Future[Message | None] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.started_at: float | None = None  # loop time at which STARTED was read
        self.problem = ""
        # The other side ended it and all it ever said was read: `started` is the whole truth.
        self.drained = False
        self._aborted = False

    @classmethod
    async def open(cls, connection: socket.socket, *, max_body: int) -> Self:
        """Take over the worker's end of a sandbox's connection. ``max_body`` bounds a result."""
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(lambda: cls(max_body), sock=connection)
        return protocol

    @property
    def started(self) -> bool:
        """The executor has said that it is about to touch the function's bytes."""
        return self.started_at is not None

    def renew(self) -> bool:
        """Get ready for the session's next call; whether there is somebody to give it to."""
        self._ready = self._loop.create_future()
        self.ended = self._loop.create_future()
        self.started_at = None
        if self.problem:
            self._broken(self.problem)
        return not self.problem

    async def hello(self, within: float) -> Hello:
        """The executor's greeting, within seconds. Raises `NotStartedError`, also for another protocol version."""
        message = await self._within(self._hello, within, "did not connect")
        protocol = message.header.get("protocol")
        if protocol not in READABLE_PROTOCOLS:
            readable = ", ".join(str(number) for number in sorted(READABLE_PROTOCOLS))
            raise NotStartedError(
                f"its executor speaks protocol {protocol!r}; this worker speaks {readable}"
            )
        pid = message.header.get("pid")
        return Hello(
            protocol=protocol,
            python=str(message.header.get("python", "")),
            pid=pid if isinstance(pid, int) else 0,
        )

    async def send_call(
        self, header: Mapping[str, Any], body: bytes, *, go: bool, within: float
    ) -> None:
        """Send CALL and, with ``go``, GO behind it. Raises `NotStartedError`.

        A small call is one write and never waits. A large one waits for the sandbox to read it:
        ``within`` seconds, and more in proportion to its size.
        """
        if len(body) <= ONE_WRITE_BYTES:
            frames = b"".join(encode_message(FrameType.CALL, header, body))
            self._write(frames + _GO if go else frames)
            return
        try:
            async with asyncio.timeout(within + len(body) / SLOWEST_BYTES_PER_S):
                for frame in encode_message(FrameType.CALL, header, body):
                    self._write(frame)
                    if self._writable is not None:
                        await self._writable
        except TimeoutError as error:
            raise NotStartedError("its executor does not read the call") from error
        if go:
            self._write(_GO)

    async def ready(self, within: float) -> None:
        """Until the executor holds the whole call. Raises `NotStartedError`."""
        await self._within(self._ready, within, "did not take the call")

    def go(self) -> None:
        self._write(_GO)

    def close(self) -> None:
        """Drop the connection at once; what was not read is lost. Idempotent."""
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a socket's transport is one
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._decoder.feed(data):
                self._accept(message)
        except ProtocolError as error:
            self._broken(f"broke the protocol: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.drained = not self._aborted
        self.resume_writing()
        self._broken(f"closed its connection{f': {exc}' if exc else ''}")
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def _accept(self, message: Message) -> None:
        if self.ended.done():
            return
        if message.type in _ENDINGS and self._hello.done():
            self.ended.set_result(message)
            self._release_waiters()
        elif message.type is FrameType.HELLO and not self._hello.done():
            self._hello.set_result(message)
        elif message.type is FrameType.READY and not self._ready.done():
            self._ready.set_result(message)
        elif message.type is FrameType.STARTED and self._ready.done() and not self.started:
            self.started_at = self._loop.time()
        elif message.type not in {FrameType.PING, FrameType.BYE}:
            raise ProtocolError(f"{message.type.name} is out of turn")

    def _broken(self, problem: str) -> None:
        """Nothing more can be had from this connection; the first reason is the one that counts."""
        if not self.problem:
            self.problem = problem
        if not self.ended.done():
            self.ended.set_result(None)
        self._release_waiters()
        self.close()

    def _release_waiters(self) -> None:
        for waiter in (self._hello, self._ready):
            if not waiter.done():
                waiter.set_result(None)

    async def _within(
        self, waiter: asyncio.Future[Message | None], within: float, what: str
    ) -> Message:
        timer = self._loop.call_later(within, self._give_up, waiter, f"{what} within {within:g} s")
        message = await waiter
        timer.cancel()
        if message is None:
            raise NotStartedError(f"its executor {self.problem or 'ended before the call'}")
        return message

    def _give_up(self, waiter: asyncio.Future[Message | None], problem: str) -> None:
        if not waiter.done():
            self.problem = problem
            waiter.set_result(None)

    def _write(self, data: bytes) -> None:
        if self.ended.done() or self._transport is None or self._transport.is_closing():
            raise NotStartedError(f"its executor {self.problem or 'has closed its connection'}")
        self._transport.write(data)
