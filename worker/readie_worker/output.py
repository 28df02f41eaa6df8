"""What a call prints: decoded across splits, tagged by stream, capped with first and last kept.

Pure: fed with bytes as the pipes give them, it hands out pieces of text. The first
`HEAD_BYTES` are handed out as they come; what follows is held back, and only its last `TAIL_BYTES`
are given at the end, behind a marker that says how much is missing.
"""

import codecs
from collections import deque
from dataclasses import dataclass
from typing import Literal

Stream = Literal["stdout", "stderr"]

HEAD_BYTES = 512 * 1024  # handed out live; with the tail, 1 MiB a call
TAIL_BYTES = 512 * 1024  # kept in a ring once the head is full
PIECE_BYTES = 64 * 1024  # the longest single piece, so that one event stays small
TAIL_PIECES = 4096  # streams that alternate byte by byte must not cost more than their bytes
RECENT_BYTES = 4096  # kept for "last lines" in the error of a sandbox that died
LAST_LINES = 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text of one stream. ``gap`` is the number of bytes left out where a marker stands."""

    stream: Stream
    text: str
    gap: int = 0


class Output:
    """The captured output of one call."""

    def __init__(self, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._head_left = head_bytes
        self._tail_limit = tail_bytes
        self._tail: deque[tuple[Stream, bytearray]] = deque()
        self._tail_bytes = 0
        self._dropped = 0
        self._cut: set[Stream] = set()  # streams whose tail does not follow on from their head
        self._decoders: dict[Stream, codecs.IncrementalDecoder] = {}
        self._pending: list[Piece] = []
        self._recent = b""

    def feed(self, stream: Stream, data: bytes) -> None:
        """Take what a pipe gave. Never raises: bytes that are not UTF-8 are shown escaped."""
        self._recent = (self._recent + data[-RECENT_BYTES:])[-RECENT_BYTES:]
        if self._head_left:
            self._decode(stream, data[: self._head_left])
            taken = min(len(data), self._head_left)
            self._head_left -= taken
            data = data[taken:]
        if data:
            self._hold_back(stream, data)

    @property
    def waiting(self) -> bool:
        """Is there something to `take`?"""
        return bool(self._pending)

    def take(self) -> list[Piece]:
        """What became available since the last call, oldest first."""
        pieces, self._pending = self._pending, []
        return pieces

    def finish(self) -> list[Piece]:
        """No more will come: the rest of the head, the marker if something was left out, the tail."""
        if self._dropped:
            for stream in self._cut & self._decoders.keys():
                self._append(stream, self._decoders.pop(stream).decode(b"", final=True))
            stream = self._tail[0][0]
            text = f"\n[readie: {self._dropped} bytes of output left out here]\n"
            self._pending.append(Piece(stream, text, gap=self._dropped))
        for stream, data in self._tail:
            self._decode(stream, self._resumed(stream, bytes(data)))
        self._tail.clear()
        for stream in tuple(self._decoders):
            self._append(stream, self._decoder(stream).decode(b"", final=True))
        return self.take()

    def last_lines(self, limit: int = LAST_LINES) -> list[str]:
        """The newest lines of both streams, for the error of a call that ended without a word."""
        return self._recent.decode("utf-8", "backslashreplace").splitlines()[-limit:]

    def _decode(self, stream: Stream, data: bytes) -> None:
        decoder = self._decoder(stream)
        for start in range(0, len(data), PIECE_BYTES):
            self._append(stream, decoder.decode(data[start : start + PIECE_BYTES]))

    def _append(self, stream: Stream, text: str) -> None:
        if not text:
            return
        last = self._pending[-1] if self._pending else None
        if last and last.stream == stream and not last.gap and len(last.text) < PIECE_BYTES // 4:
            self._pending[-1] = Piece(stream, last.text + text)
        else:
            self._pending.append(Piece(stream, text))

    def _hold_back(self, stream: Stream, data: bytes) -> None:
        if self._tail and self._tail[-1][0] == stream and len(self._tail[-1][1]) < PIECE_BYTES:
            self._tail[-1][1].extend(data)
        else:
            self._tail.append((stream, bytearray(data)))
        self._tail_bytes += len(data)
        while (excess := self._tail_bytes - self._tail_limit) > 0 or len(self._tail) > TAIL_PIECES:
            oldest, held = self._tail[0]
            lost = min(excess, len(held)) if excess > 0 else len(held)
            del held[:lost]
            if not held:
                self._tail.popleft()
            self._tail_bytes -= lost
            self._dropped += lost
            self._cut.add(oldest)

    def _resumed(self, stream: Stream, data: bytes) -> bytes:
        """``data`` without the rest of a character whose beginning was left out."""
        if stream not in self._cut:
            return data
        self._cut.discard(stream)
        start = 0
        while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
            start += 1
        return data[start:]

    def _decoder(self, stream: Stream) -> codecs.IncrementalDecoder:
        if stream not in self._decoders:
            self._decoders[stream] = _new_decoder()
        return self._decoders[stream]


def _new_decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("backslashreplace")
