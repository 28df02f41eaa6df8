"""Frames and messages of the executor protocol, and of ``application/vnd.readie.*`` bodies.

A frame is ``type (1 byte) | length (8 bytes, big-endian) | payload``. A *message* is one header
frame whose payload is a JSON object. Types in `BODY_TYPES` also carry a body: the header frame is
followed by zero or more frames of the same type with raw bytes, then by one empty END frame, so
that a stream that stops early is never mistaken for a complete message.

This module does no I/O: `Decoder` is fed bytes and gives messages, the ``encode_*`` functions give
bytes. Limits are checked on the announced length, before anything is allocated.
"""

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

FRAME_HEADER = struct.Struct(">BQ")
CHUNK_BYTES = 1 << 20  # body frames are cut to this, so that a reader can relay while it reads
MAX_FRAME_BYTES = 64 << 20  # the longest single frame a reader accepts
MAX_MESSAGE_BYTES = 4 << 30  # the longest body a reader accepts by default
MAX_HEADER_BYTES = 4 << 20  # a JSON header: names, options and a traceback, never data


class FrameType(IntEnum):
    """Numbers are part of the protocol: never reuse or renumber one."""

    END = 0
    HELLO = 1
    CALL = 2
    READY = 3
    GO = 4
    STARTED = 5
    ITEM = 6
    CREDIT = 7
    RESULT = 8
    ERROR = 9
    CANCEL = 10
    PING = 11
    BYE = 12
    ACCEPTED = 13
    LOG = 14


BODY_TYPES = frozenset({FrameType.CALL, FrameType.ITEM, FrameType.RESULT, FrameType.ERROR})


class ProtocolError(ValueError):
    """The bytes are not a well-formed sequence of messages; the connection cannot be used on."""


class MessageTooLargeError(ProtocolError):
    """A frame or body is longer than the reader accepts. ``limit`` and ``size`` are bytes."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(f"{what} has {size} bytes, the limit is {limit}")
        self.size = size
        self.limit = limit


class TruncatedMessageError(ProtocolError):
    """The stream ended inside a frame or before a message's END frame."""


@dataclass(frozen=True, slots=True)
class Message:
    """One decoded message: its type, its JSON header and its body (empty for bodyless types)."""

    type: FrameType
    header: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = b""


def encode_frame(frame_type: FrameType, payload: bytes = b"") -> bytes:
    """One frame. Raises `MessageTooLargeError` above `MAX_FRAME_BYTES`."""
    if len(payload) > MAX_FRAME_BYTES:
        raise MessageTooLargeError(f"{frame_type.name} frame", len(payload), MAX_FRAME_BYTES)
    return FRAME_HEADER.pack(frame_type, len(payload)) + payload


def encode_header(frame_type: FrameType, header: Mapping[str, Any] | None = None) -> bytes:
    """The first frame of a message; the whole message for a type without a body."""
    payload = json.dumps(header or {}, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    if len(payload) > MAX_HEADER_BYTES:
        raise MessageTooLargeError(f"{frame_type.name} header", len(payload), MAX_HEADER_BYTES)
    return encode_frame(frame_type, payload)


def encode_body(frame_type: FrameType, body: bytes | memoryview) -> Iterator[bytes]:
    """The frames of a message's body after its header frame, END included."""
    view = memoryview(body)
    for start in range(0, len(view), CHUNK_BYTES):
        yield encode_frame(frame_type, bytes(view[start : start + CHUNK_BYTES]))
    yield encode_frame(FrameType.END)


def encode_message(
    frame_type: FrameType,
    header: Mapping[str, Any] | None = None,
    body: bytes | memoryview | None = None,
) -> Iterator[bytes]:
    """Every frame of one message, in order. Only types in `BODY_TYPES` may have a body."""
    if frame_type not in BODY_TYPES:
        if body is not None:
            raise ProtocolError(f"{frame_type.name} messages carry no body")
        yield encode_header(frame_type, header)
        return
    yield encode_header(frame_type, header)
    yield from encode_body(frame_type, body if body is not None else b"")


class Decoder:
    """Turns a byte stream into messages, whatever the cuts between the pieces it is fed.

    ``max_body`` bounds the body of one message in bytes. With ``on_body`` the pieces of bodies go
    there as they come and `Message.body` stays empty, so that a large body is never held. After a
    `ProtocolError` the decoder is unusable: the stream has lost its frame boundaries.
    """

    def __init__(
        self,
        max_body: int = MAX_MESSAGE_BYTES,
        on_body: Callable[[bytes], object] | None = None,
    ) -> None:
        self._buffer = bytearray()
        self._max_body = max_body
        self._on_body = on_body
        self._open: FrameType | None = None  # a message whose END has not arrived
        self._header: dict[str, Any] = {}
        self._chunks: list[bytes] = []
        self._body_bytes = 0

    def feed(self, data: bytes) -> list[Message]:
        """Take the next bytes; give the messages they complete, oldest first."""
        self._buffer += data
        messages = []
        while (frame := self._next_frame()) is not None:
            message = self._accept(*frame)
            if message is not None:
                messages.append(message)
        return messages

    def close(self) -> None:
        """The stream has ended. Raises `TruncatedMessageError` when it ended inside a message."""
        if self._open is not None:
            raise TruncatedMessageError(f"the stream ended inside a {self._open.name} message")
        if self._buffer:
            raise TruncatedMessageError("the stream ended inside a frame")

    def _next_frame(self) -> tuple[FrameType, bytes] | None:
        if len(self._buffer) < FRAME_HEADER.size:
            return None
        number, length = FRAME_HEADER.unpack_from(self._buffer)
        try:
            frame_type = FrameType(number)
        except ValueError:
            raise ProtocolError(f"unknown frame type {number}") from None
        self._check_length(frame_type, length)
        end = FRAME_HEADER.size + length
        if len(self._buffer) < end:
            return None
        payload = bytes(memoryview(self._buffer)[FRAME_HEADER.size : end])
        del self._buffer[:end]
        return frame_type, payload

    def _check_length(self, frame_type: FrameType, length: int) -> None:
        if frame_type is FrameType.END and length:
            raise ProtocolError("an END frame carries no payload")
        limit = MAX_FRAME_BYTES if self._open is not None else MAX_HEADER_BYTES
        if length > limit:
            raise MessageTooLargeError(f"{frame_type.name} frame", length, limit)
        if self._open is not None and self._body_bytes + length > self._max_body:
            size = self._body_bytes + length
            raise MessageTooLargeError(f"{self._open.name} body", size, self._max_body)

    def _accept(self, frame_type: FrameType, payload: bytes) -> Message | None:
        if self._open is None:
            return self._begin(frame_type, payload)
        if frame_type is self._open:
            self._body_bytes += len(payload)
            (self._on_body or self._chunks.append)(payload)
            return None
        if frame_type is not FrameType.END:
            raise ProtocolError(f"{frame_type.name} frame inside a {self._open.name} message")
        message = Message(self._open, self._header, b"".join(self._chunks))
        self._open, self._chunks, self._body_bytes = None, [], 0
        return message

    def _begin(self, frame_type: FrameType, payload: bytes) -> Message | None:
        if frame_type is FrameType.END:
            raise ProtocolError("END frame outside a message")
        header = _parse_header(frame_type, payload)
        if frame_type not in BODY_TYPES:
            return Message(frame_type, header)
        self._open, self._header = frame_type, header
        return None


def _parse_header(frame_type: FrameType, payload: bytes) -> dict[str, Any]:
    try:
        header = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{frame_type.name} header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise ProtocolError(f"{frame_type.name} header is not a JSON object")
    return header
