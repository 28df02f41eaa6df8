"""Containers created ahead: half of a restore's time does not depend on the checkpoint."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from readie_worker.sandbox.api import Network
from readie_worker.sandbox.errors import StartError
from readie_worker.sandbox.gvisor.container import CreatedContainer
from readie_worker.sandbox.gvisor.launcher import Launcher


class Shelf:
    """Keeps ``size`` created containers with the worker's network; others are made on request.

    A created container serves a cold start as well as any checkpoint.
    """

    def __init__(self, launcher: Launcher, network: Network, size: int) -> None:
        self._launcher = launcher
        self._network = network
        self._size = size
        self._ready: list[CreatedContainer] = []
        self._filling: asyncio.Task[None] | None = None
        self._closed = False
        self._fill()

    @contextlib.asynccontextmanager
    async def taken(self, network: Network) -> AsyncIterator[CreatedContainer]:
        """A created container nobody else has, to be started in the block. Raises `StartError`.

        The one that takes its place is made after the block: making it uses as much of the machine
        as the start does, which somebody may be waiting for.
        """
        if self._closed:
            raise StartError("the gvisor runtime is closed")
        try:
            yield await self._take(network)
        finally:
            self._fill()

    async def close(self) -> None:
        """Make no more; those on the shelf are the launcher's to remove."""
        self._closed = True
        if self._filling is not None:
            self._filling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._filling

    async def _take(self, network: Network) -> CreatedContainer:
        while network == self._network and self._ready:
            created = self._ready.pop(0)
            if created.alive:
                return created
            await created.remove()
        return await self._launcher.create(network)

    def _fill(self) -> None:
        idle = self._filling is None or self._filling.done()
        if idle and not self._closed and len(self._ready) < self._size:
            self._filling = asyncio.create_task(self._make())

    async def _make(self) -> None:
        while len(self._ready) < self._size:
            try:
                self._ready.append(await self._launcher.create(self._network))
            except StartError:
                return  # the next start meets the reason, and reports it
