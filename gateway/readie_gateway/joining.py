"""Sends what one turn of the event loop writes to a client as one packet."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Written at once when so much waits: then it fills packets anyway, and who writes must learn from
# the transport that the client is slow.
JOINED_BYTES = 64 << 10


class JoiningProtocol(HttpToolsProtocol):
    """uvicorn writes the head and the body of an answer apart.

    Each write wakes the client, and the wake-ups took half of the time that a warm call needed here.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(JoiningTransport(transport))  # type: ignore[arg-type]


class JoiningTransport:
    """A transport whose writes wait for the end of the turn. Everything else is the given one's."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._pieces: list[bytes] = []
        self._size = 0
        self._loop = asyncio.get_running_loop()

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self._send)
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= JOINED_BYTES:
            self._send()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _send(self) -> None:
        pieces, self._pieces, self._size = self._pieces, [], 0
        if pieces and not self._transport.is_closing():
            self._transport.write(b"".join(pieces))
