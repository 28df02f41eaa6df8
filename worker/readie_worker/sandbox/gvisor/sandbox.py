"""One running sandbox of the gVisor runtime."""

import asyncio
import socket

from readie_wire.outcome import StartKind
from readie_worker.sandbox.api import Checkpoint, Limits, SandboxExit
from readie_worker.sandbox.errors import SandboxGoneError
from readie_worker.sandbox.gvisor.container import CreatedContainer


class GVisorSandbox:
    """See `readie_worker.sandbox.api.Sandbox`. ``container`` runs and its executor is connected."""

    def __init__(
        self,
        sandbox_id: str,
        container: CreatedContainer,
        connection: socket.socket,
        checkpoint: Checkpoint | None,
    ) -> None:
        self._id = sandbox_id
        self._container = container
        self._connection = connection
        self._checkpoint = checkpoint

    @property
    def id(self) -> str:
        return self._id

    @property
    def kind(self) -> StartKind:
        return StartKind.COLD if self._checkpoint is None else StartKind.RESTORED

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self._checkpoint

    @property
    def connection(self) -> socket.socket:
        return self._connection

    @property
    def stdout(self) -> int:
        return self._container.parts.pipes.stdout

    @property
    def stderr(self) -> int:
        return self._container.parts.pipes.stderr

    async def set_limits(self, limits: Limits) -> None:
        if not self._container.alive:
            raise SandboxGoneError(f"sandbox {self._id} has ended")
        self._container.parts.group.apply(limits)

    async def wait(self) -> SandboxExit:
        return await asyncio.shield(self._container.exit)

    async def kill(self) -> None:
        self._container.kill()

    async def memory_in_use(self) -> int | None:
        return self._container.parts.group.memory_in_use() if self._container.alive else None

    async def peak_memory(self) -> int | None:
        return self._container.peak_memory()

    async def destroy(self) -> None:
        await self._container.remove()
