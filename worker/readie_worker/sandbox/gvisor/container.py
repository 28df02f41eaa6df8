"""A created container with all that it holds on the host, from its making to its removal."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from readie_worker.sandbox.api import SandboxExit
from readie_worker.sandbox.gvisor.cgroups import END_DEADLINE_S, Group
from readie_worker.sandbox.gvisor.children import Children, Processes
from readie_worker.sandbox.gvisor.network import Link, SandboxNetwork
from readie_worker.sandbox.gvisor.pipes import Pipes
from readie_worker.sandbox.gvisor.rundir import RunDir
from readie_worker.sandbox.gvisor.runsc import Container, Runsc, RunscError

if TYPE_CHECKING:
    from socket import socket

_SHELL_SIGNAL_BASE = 128  # gVisor's kernel ends with this + number for a program's signal


@dataclass(frozen=True, slots=True)
class Parts:
    """What a container is made of. ``link`` only with the network ``sandbox``."""

    container: Container
    rundir: RunDir
    group: Group
    pipes: Pipes
    link: Link | None


class CreatedContainer:
    """A container that `runsc create` has made, to be started or restored once.

    Its end is noticed whenever it comes; `remove` may be called at any time and more than once.
    """

    def __init__(
        self,
        parts: Parts,
        runsc: Runsc,
        children: Children,
        network: SandboxNetwork | None,
        forget: Callable[["CreatedContainer"], object],
    ) -> None:
        self.parts = parts
        self.connection: socket | None = None  # the executor's, once it is there
        self.exit: asyncio.Future[SandboxExit] = asyncio.get_running_loop().create_future()
        self._runsc = runsc
        self._children = children
        self._network = network
        self._forget = forget
        self._processes: Processes | None = None
        self._watch: asyncio.Task[None] | None = None
        self._removal: asyncio.Task[None] | None = None
        self._memory_peak: int | None = None

    @property
    def alive(self) -> bool:
        return self._processes is not None and not self.exit.done()

    async def create(self) -> None:
        """Run `runsc create`. Raises `RunscError`; call `remove` then."""
        parts = self.parts
        await self._runsc.create(parts.container, parts.pipes.stdio, parts.group.joining())
        parts.pipes.close_container_ends()
        self._processes = await self._children.of(parts.container.bundle)
        self._watch = asyncio.create_task(self._until_end(self._processes))

    def kill(self) -> None:
        """End all its processes at once, its kernel first, so that its end is that of a kill."""
        self._children.kill(self.parts.container.bundle)
        self.parts.group.kill()

    def peak_memory(self) -> int | None:
        """Bytes at most so far; remembered when the container is gone."""
        self._memory_peak = self.parts.group.peak_memory() or self._memory_peak
        return self._memory_peak

    async def remove(self) -> None:
        """End it and free everything. Goes through even when the caller is cancelled."""
        if self._removal is None:
            self._removal = asyncio.create_task(self._remove())
        await asyncio.shield(self._removal)

    async def _remove(self) -> None:
        members = set(self.parts.group.pids())
        self.kill()
        # Of a `create` that was given up half way, more may come; and a group that is not empty stays.
        members |= await self.parts.group.end()
        if self._watch is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_DEADLINE_S):
                    await asyncio.shield(self._watch)
        await self._children.bury_all(members)  # else `runsc delete` waits for them
        parts = self.parts
        with contextlib.suppress(RunscError):  # forgotten by the sweep of the next start at last
            await self._runsc.delete(parts.container)
        self._children.bury()
        if parts.link is not None and self._network is not None:
            await self._network.remove(parts.link)
        parts.pipes.close()
        if self.connection is not None:
            self.connection.close()
        parts.group.remove()
        await asyncio.to_thread(parts.rundir.remove)
        if not self.exit.done():
            self.exit.set_result(SandboxExit(signal=signal.SIGKILL))
        self._forget(self)

    async def _until_end(self, processes: Processes) -> None:
        status = await self._children.ended(processes.kernel)
        group = self.parts.group
        ended = _describe(status, group.out_of_memory_kills() > 0, self.peak_memory())
        # gVisor's kernel gives up when the host refuses it one.
        crowded = group.refused_processes() > 0 and ended.exit_code != 0
        self.exit.set_result(replace(ended, crowded=crowded))
        await self._children.ended(processes.gofer)


def _describe(status: int, out_of_memory: bool, peak: int | None) -> SandboxExit:
    """From the wait status of gVisor's kernel, which ends as the program in it did."""
    code = os.waitstatus_to_exitcode(status)
    if out_of_memory:  # the kernel may have hit any of its processes; how it ended says nothing
        return SandboxExit(signal=signal.SIGKILL, out_of_memory=True, peak_memory=peak)
    if code < 0:
        return SandboxExit(signal=-code, peak_memory=peak)
    if code - _SHELL_SIGNAL_BASE in signal.valid_signals():
        return SandboxExit(signal=code - _SHELL_SIGNAL_BASE, peak_memory=peak)
    return SandboxExit(exit_code=code, peak_memory=peak)
