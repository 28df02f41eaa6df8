"""One sandbox of the fork runtime: a process group, its connection and its output."""

import asyncio
import contextlib
import dataclasses
import os
import shutil
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from readie_wire.outcome import StartKind
from readie_worker.sandbox import fork_limits
from readie_worker.sandbox.api import Checkpoint, Limits, SandboxExit
from readie_worker.sandbox.errors import SandboxGoneError
from readie_worker.sandbox.fork_zygote import Started, ZygoteProcess

KILL_DEADLINE_S = 5.0  # SIGKILL takes milliseconds, unless the machine hangs


class Ends:
    """The worker's ends of a new sandbox, and those that travel to it."""

    def __init__(self) -> None:
        self.connection, self._their_connection = socket.socketpair()
        self.connection.setblocking(False)
        self.stdout, self._their_stdout = os.pipe()
        self.stderr, self._their_stderr = os.pipe()
        for descriptor in (self.stdout, self.stderr):
            os.set_blocking(descriptor, False)
        # A caller closes a descriptor by its number, which then may name something else; device and
        # inode of a pipe are its own.
        self._files = {fd: os.fstat(fd) for fd in (self.stdout, self.stderr)}

    @property
    def theirs(self) -> tuple[int, int, int]:
        return self._their_connection.fileno(), self._their_stdout, self._their_stderr

    def close_theirs(self) -> None:
        self._their_connection.close()
        os.close(self._their_stdout)
        os.close(self._their_stderr)

    def close_ours(self) -> None:
        """Close what the caller has not closed. Idempotent."""
        self.connection.close()
        for descriptor, file in self._files.items():
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), file):
                    os.close(descriptor)
        self._files.clear()


@dataclass(frozen=True, slots=True)
class Holding:
    """What a fork sandbox is made of. ``mapped``: see `fork_limits.apply`.

    ``forget`` is called with the sandbox's id when nothing of it is left.
    """

    ends: Ends
    folder: Path
    mapped: int
    own_user: bool
    out_of_memory_kills: int
    forget: Callable[[str], object]


class ForkSandbox:
    """See `readie_worker.sandbox.api.Sandbox`."""

    def __init__(
        self,
        zygote: ZygoteProcess,
        started: Started,
        holding: Holding,
        checkpoint: Checkpoint | None,
    ) -> None:
        self._zygote = zygote
        self._started = started
        self._holding = holding
        self._checkpoint = checkpoint
        self._exit: asyncio.Future[SandboxExit] = started.exit
        self._memory = 0  # the limit, once there is one

    @property
    def id(self) -> str:
        return self._started.id

    @property
    def kind(self) -> StartKind:
        return StartKind.COLD if self._checkpoint is None else StartKind.FORKED

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self._checkpoint

    @property
    def connection(self) -> socket.socket:
        return self._holding.ends.connection

    @property
    def stdout(self) -> int:
        return self._holding.ends.stdout

    @property
    def stderr(self) -> int:
        return self._holding.ends.stderr

    @property
    def pid(self) -> int:
        return self._started.pid

    async def limited(self, limits: Limits) -> Self:
        """Itself, with its first limits applied; one that has ended already says so when used."""
        with contextlib.suppress(SandboxGoneError):
            await self.set_limits(limits)
        return self

    async def set_limits(self, limits: Limits) -> None:
        gone = SandboxGoneError(f"sandbox {self.id} has ended")
        if self._exit.done():
            raise gone
        grows = 0 < self._memory < limits.memory
        self._memory = limits.memory
        try:
            if grows:
                fork_limits.raise_memory(self.pid, limits, self._holding.mapped)
            fork_limits.apply(
                self.pid, limits, self._holding.mapped, own_user=self._holding.own_user
            )
        except ProcessLookupError as error:
            raise gone from error

    async def wait(self) -> SandboxExit:
        ended = await asyncio.shield(self._exit)
        killed = ended.signal == signal.SIGKILL and not self._started.killed
        if killed and fork_limits.out_of_memory_kills() > self._holding.out_of_memory_kills:
            return dataclasses.replace(ended, out_of_memory=True)
        return ended

    async def kill(self) -> None:
        self._zygote.kill(self._started)

    async def memory_in_use(self) -> int | None:
        if self._exit.done():
            return None
        return fork_limits.memory_in_use(self.pid, self._holding.mapped)

    async def peak_memory(self) -> int | None:
        if self._exit.done():
            return self._exit.result().peak_memory
        return fork_limits.peak_memory(self.pid)

    async def destroy(self) -> None:
        await self.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_DEADLINE_S):
                await asyncio.shield(self._exit)
        self._holding.ends.close_ours()
        if not self._started.cleared:
            await asyncio.to_thread(shutil.rmtree, self._holding.folder, ignore_errors=True)
        self._holding.forget(self.id)
