"""A small HTTP/1.1 client for asyncio: one connection a request, bodies also piece by piece.

Close to the wire on purpose: tests cut bodies short, close sockets and read streams as they come.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

DEADLINE_S = 30.0  # for any one step; machines are busy


@dataclass
class Answer:
    """A response whose head has arrived. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    body: bytes = field(default=b"")

    def json(self) -> Any:
        return json.loads(self.body)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int(await _line(self.reader), 16):
                yield await _exactly(self.reader, size)
                await _line(self.reader)
            await _line(self.reader)
        elif length := int(self.headers.get("content-length", "0")):
            yield await _exactly(self.reader, length)

    def hang_up(self) -> None:
        """Close the connection in the middle of whatever is going on."""
        self.writer.transport.abort()


@asynccontextmanager
async def opened(
    url: str,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    length: int | None = None,
) -> AsyncIterator[Answer]:
    """Send a request and give the answer when its head is there; the connection ends with the block.

    ``length`` announces another length than the body has.
    """
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        given = {"Host": parts.netloc, "Connection": "close", **(headers or {})}
        if body is not None or length is not None:
            given["Content-Length"] = str(len(body or b"") if length is None else length)
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + (body or b""))
        status = int((await _line(reader)).split()[1])
        received: dict[str, str] = {}
        while line := await _line(reader):
            name, _, value = line.partition(":")
            received[name.lower()] = value.strip()
        yield Answer(status, received, reader, writer)
    finally:
        writer.close()


async def request(url: str, method: str, path: str, **given: Any) -> Answer:
    """A request whose whole answer is read."""
    async with opened(url, method, path, **given) as answer:
        answer.body = b"".join([piece async for piece in answer.pieces()])
        return answer


async def _line(reader: asyncio.StreamReader) -> str:
    async with asyncio.timeout(DEADLINE_S):
        return (await reader.readline()).decode("latin-1").rstrip("\r\n")


async def _exactly(reader: asyncio.StreamReader, size: int) -> bytes:
    async with asyncio.timeout(DEADLINE_S):
        return await reader.readexactly(size)
