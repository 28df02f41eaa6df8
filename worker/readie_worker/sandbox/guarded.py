"""A guard around any runtime: what the worker may rely on, however the driver behaves.

A sandbox has one mutation at a time. The first error of one kills it, and from then on everything
is harmless: nothing raises but `set_limits`, which says why. A start that raises anything gives a
`StartError`; one that takes too long is given up, and what it still brings up is destroyed.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Coroutine, Sequence
from typing import Any

from readie_wire.outcome import StartKind
from readie_worker.sandbox.api import (
    Checkpoint,
    Limits,
    Runtime,
    Sandbox,
    SandboxExit,
    SandboxSpec,
)
from readie_worker.sandbox.errors import SandboxError, SandboxGoneError, StartError

logger = logging.getLogger(__name__)

START_DEADLINE_S = 60.0  # a restore of several GB from a cold disk, with room
MUTATION_DEADLINE_S = 30.0  # a kill or a change of limits; destroying may take as long


class GuardedSandbox:
    """See `readie_worker.sandbox.api.Sandbox`; made by `GuardedRuntime`."""

    def __init__(self, inner: Sandbox, deadline: float = MUTATION_DEADLINE_S) -> None:
        self._inner = inner
        self._deadline = deadline
        self._lock = asyncio.Lock()
        self._failure: str | None = None
        self._destroyed: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def kind(self) -> StartKind:
        return self._inner.kind

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self._inner.checkpoint

    @property
    def connection(self) -> socket.socket:
        return self._inner.connection

    @property
    def stdout(self) -> int:
        return self._inner.stdout

    @property
    def stderr(self) -> int:
        return self._inner.stderr

    async def set_limits(self, limits: Limits) -> None:
        async with self._lock:
            if self._failure is not None:
                raise SandboxGoneError(f"sandbox {self.id} was ended: {self._failure}")
            try:
                async with asyncio.timeout(self._deadline):
                    await self._inner.set_limits(limits)
            except SandboxGoneError as error:
                self._failure = str(error)
                raise
            except BaseException as error:
                # Its limits are unknown now, so no call may run in it.
                await self._fail(f"its limits could not be set: {error!r}")
                if not isinstance(error, Exception):
                    raise
                raise SandboxGoneError(f"sandbox {self.id} was ended: {self._failure}") from error

    async def wait(self) -> SandboxExit:
        return await self._inner.wait()

    async def kill(self) -> None:
        """Not behind the lock: ending a sandbox must not wait for what hangs in it."""
        if self._failure is None:
            self._failure = "it was killed"
        await self._harmlessly("kill", self._inner.kill())

    async def memory_in_use(self) -> int | None:
        try:
            async with asyncio.timeout(self._deadline):
                return await self._inner.memory_in_use()
        except Exception as error:  # noqa: BLE001 - a guard is for the errors nobody foresaw
            logger.warning("sandbox %s: no memory in use: %r", self.id, error)
            return None

    async def peak_memory(self) -> int | None:
        try:
            async with asyncio.timeout(self._deadline):
                return await self._inner.peak_memory()
        except Exception as error:  # noqa: BLE001 - a guard is for the errors nobody foresaw
            logger.warning("sandbox %s: no peak memory: %r", self.id, error)
            return None

    async def destroy(self) -> None:
        """Once, however often it is called, and to the end, even when a caller stops waiting."""
        if self._destroyed is None:
            self._failure = self._failure or "it was destroyed"
            self._destroyed = asyncio.create_task(
                self._harmlessly("destroy", self._inner.destroy())
            )
        await asyncio.shield(self._destroyed)

    async def _fail(self, reason: str) -> None:
        self._failure = reason
        await self._harmlessly("kill", self._inner.kill())

    async def _harmlessly(self, what: str, operation: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(self._deadline):
                await operation
        except Exception as error:  # noqa: BLE001
            logger.warning("sandbox %s: %s failed: %r", self.id, what, error)


class GuardedRuntime:
    """See `readie_worker.sandbox.api.Runtime`. Deadlines in seconds."""

    def __init__(
        self,
        inner: Runtime,
        *,
        start_deadline: float = START_DEADLINE_S,
        mutation_deadline: float = MUTATION_DEADLINE_S,
    ) -> None:
        self._inner = inner
        self._start_deadline = start_deadline
        self._mutation_deadline = mutation_deadline
        self._abandoned: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def isolation(self) -> str:
        return self._inner.isolation

    @property
    def notes(self) -> Sequence[str]:
        return self._inner.notes

    async def open(self) -> None:
        await self._inner.open()

    async def adopt(self, checkpoint: Checkpoint) -> None:
        await self._inner.adopt(checkpoint)

    async def discard(self, key: str) -> None:
        await self._inner.discard(key)

    async def cold(self, spec: SandboxSpec) -> GuardedSandbox:
        return await self._started(spec, self._inner.cold(spec))

    async def restore(self, checkpoint: Checkpoint, spec: SandboxSpec) -> GuardedSandbox:
        return await self._started(spec, self._inner.restore(checkpoint, spec))

    async def close(self) -> None:
        await self._inner.close()
        if not self._abandoned:
            return
        _, stuck = await asyncio.wait(self._abandoned, timeout=self._mutation_deadline)
        for task in stuck:
            task.cancel()

    async def _started(
        self, spec: SandboxSpec, start: Coroutine[Any, Any, Sandbox]
    ) -> GuardedSandbox:
        task = asyncio.create_task(start)
        try:
            async with asyncio.timeout(self._start_deadline):
                return GuardedSandbox(await asyncio.shield(task), self._mutation_deadline)
        except StartError:
            raise
        except TimeoutError as error:
            self._abandon(task)
            raise StartError(
                f"sandbox {spec.id} did not start within {self._start_deadline:g} s"
            ) from error
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        except SandboxError as error:
            raise StartError(str(error)) from error
        except Exception as error:
            raise StartError(f"sandbox {spec.id} did not start: {error!r}") from error

    def _abandon(self, start: asyncio.Task[Sandbox]) -> None:
        """Nobody waits for it any more; what it still brings up is destroyed."""
        start.cancel()
        task = asyncio.create_task(self._clear_away(start))
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)

    async def _clear_away(self, start: asyncio.Task[Sandbox]) -> None:
        with contextlib.suppress(Exception, asyncio.CancelledError):
            sandbox = await start
            await GuardedSandbox(sandbox, self._mutation_deadline).destroy()
