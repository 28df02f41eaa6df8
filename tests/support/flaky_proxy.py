"""A connection to a server that loses answers on purpose."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path


class FlakyProxy:
    """Forwards bytes between a port of its own and a unix socket, ``target`` for new connections."""

    def __init__(self, target: Path) -> None:
        self.url = ""
        self.target = target
        self._losing = False
        self.lost = 0  # answers lost so far
        self._writers: set[asyncio.StreamWriter] = set()

    def lose_next_answer(self) -> None:
        """The next bytes from the server never arrive: the connection breaks instead."""
        self._losing = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(self.target)
        self._writers |= {writer, server_writer}
        try:
            await asyncio.gather(
                self._forward(reader, server_writer),
                self._answer(server_reader, writer),
            )
        finally:
            for end in (writer, server_writer):
                end.close()
                with suppress(OSError):
                    await end.wait_closed()
            self._writers -= {writer, server_writer}

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if self._losing:
                    self._losing = False
                    self.lost += 1
                    break
                writer.write(data)
                await writer.drain()
        writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["FlakyProxy"]:
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = listener.sockets[0].getsockname()[:2]
        self.url = f"redis://{host}:{port}/0"
        try:
            yield self
        finally:
            listener.close()
            for writer in self._writers:
                writer.close()
            await listener.wait_closed()
