"""The processes that `runsc create` leaves behind become ours, so that we see how they end.

A sandbox is a process of `runsc`'s that outlives the command which made it. Its parent then is the
nearest subreaper: being that one tells its death at once and with the exit status, which neither
`runsc wait` (0.1 to 1.7 s late, and silent when it comes too late) nor a poll can. It also keeps
dead processes from piling up where the worker is the first process of a container.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from readie_worker.sandbox.errors import RuntimeUnavailableError
from readie_worker.sandbox.gvisor.runsc import RunscError

_PR_SET_CHILD_SUBREAPER = 36
_COMMAND_NAME = b"(exe)"  # what runsc's own processes are called: they run /proc/self/exe
_KERNEL, _GOFER = b"runsc-sandbox", b"runsc-gofer"
_NAMES = frozenset({_KERNEL, _GOFER})
# A process that starts its program anew, as the gofer does, has no command line for a moment; nor does
# the kernel promise a complete list of children while others of them end.
SEEN_WITHIN_S = 2.0
_POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class Processes:
    """The two processes of one sandbox: the kernel that runs it, and its window on host files."""

    kernel: int
    gofer: int

    @property
    def all(self) -> tuple[int, int]:
        return (self.kernel, self.gofer)


class Children:
    """Finds, awaits and buries the processes of this worker's sandboxes."""

    # Of the whole process, as its children are: another runtime in it must not bury ours.
    _awaited: ClassVar[set[int]] = set()

    def adopt_orphans(self) -> None:
        """Become the parent of every process whose parent dies. Of no harm to other children."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise RuntimeUnavailableError(f"this process cannot adopt sandboxes: {reason}")

    async def of(self, bundle: Path) -> Processes:
        """The processes of the sandbox that `runsc create` has just made of `bundle`."""
        deadline = time.monotonic() + SEEN_WITHIN_S
        while missing := _NAMES - (found := _with_bundle(bundle)).keys():
            if time.monotonic() > deadline:
                names = b", ".join(sorted(missing)).decode()
                raise RunscError(f"runsc create left no {names} for {bundle}")
            await asyncio.sleep(_POLL_S)
        processes = Processes(found[_KERNEL], found[_GOFER])
        self._awaited.update(processes.all)
        return processes

    def kill(self, bundle: Path) -> None:
        """End whatever there is of that sandbox, also one that was never completely made."""
        for pid in _with_bundle(bundle).values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def ended(self, pid: int) -> int:
        """Until the process has ended; its wait status, for `os.waitstatus_to_exitcode`."""
        loop = asyncio.get_running_loop()
        descriptor = os.pidfd_open(pid)
        over = asyncio.Event()
        loop.add_reader(descriptor, over.set)
        try:
            await over.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        self._awaited.discard(pid)
        return os.waitpid(pid, 0)[1]  # noqa: ASYNC222 - it is over

    def bury(self) -> None:
        """Collect what else of ended sandboxes has become ours: the hosts of their threads."""
        for pid in _children():
            stat = _read(f"/proc/{pid}/stat")
            dead = stat.rpartition(b") ")[2].startswith(b"Z")
            if pid not in self._awaited and dead and _is_runscs(stat):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    async def bury_all(self, pids: Set[int]) -> None:
        """Until these are, too: they have left their group, and may be just about to end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SEEN_WITHIN_S):
                self.bury()
                while any(_is_runscs(_read(f"/proc/{pid}/stat")) for pid in pids - self._awaited):
                    await asyncio.sleep(_POLL_S)
                    self.bury()


def _is_runscs(stat: bytes) -> bool:
    return _COMMAND_NAME in stat


def _with_bundle(bundle: Path) -> dict[bytes, int]:
    """Our children that serve this bundle, by the name they go by."""
    option = f"--bundle={bundle}".encode()
    found: dict[bytes, int] = {}
    for pid in _children():
        words = _read(f"/proc/{pid}/cmdline").split(b"\0")
        if option in words:
            found[words[0]] = pid
    return found


def _children() -> list[int]:
    pids: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        pids += map(int, _read(task / "children").split())
    return pids


def _read(path: str | Path) -> bytes:
    """Empty when the process is gone meanwhile."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
