"""Ends sandboxes by what they are on the host: descendants of a process, members of a cgroup.

Processes may fork while they are being killed, so each round looks again, until a round finds
nobody alive. For Linux: elsewhere neither can be listed.
"""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

ROUND_S = 0.01  # between two rounds: SIGKILL takes a moment

SUPPORTED = sys.platform == "linux"

_PROC = Path("/proc")


class Ward(Protocol):
    """Something whose sandboxes can be ended."""

    @property
    def over(self) -> bool:
        """Nothing can be in it any more, so it need not be kept."""

    def kill(self) -> bool:
        """One round of SIGKILL; whether anybody was still alive."""

    def close(self) -> None:
        """Let go of it without harm."""


class ProcessWard:
    """A process and its descendants, which come back to it when their own parents end.

    Held by a descriptor, so that its number, once given to another process, harms nobody. Raises
    `ProcessLookupError` when it is gone already.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._descriptor = os.pidfd_open(pid)

    @property
    def over(self) -> bool:
        readable, _, _ = select.select([self._descriptor], [], [], 0)
        return bool(readable)

    def kill(self) -> bool:
        # Descendants first: as long as it lives, even dead or stopped ones have a known ancestor.
        if self.over:
            return False
        alive = False
        for pid in _descendants(self._pid):
            alive = _kill(pid) or alive
        if not alive:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        return not self.over

    def close(self) -> None:
        os.close(self._descriptor)


class GroupWard:
    """A cgroup with all groups below it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def over(self) -> bool:
        return False  # a folder comes and goes with what is in it

    def kill(self) -> bool:
        with contextlib.suppress(OSError):  # version 2, Linux 5.14: the kernel does it in one step
            (self._folder / "cgroup.kill").write_text("1")
        alive = False
        for pid in _members(self._folder):
            alive = _kill(pid) or alive
        return alive

    def close(self) -> None:
        """It holds nothing."""


def end_all(wards: list[Ward], within_s: float) -> bool:
    """Rounds of SIGKILL until nobody is left; whether that was reached in time."""
    deadline = time.monotonic() + within_s
    while True:
        alive = [ward.kill() for ward in wards]
        if not any(alive):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(ROUND_S)


def _descendants(pid: int) -> Iterator[int]:
    to_visit = _children(pid)
    while to_visit:
        child = to_visit.pop()
        to_visit += _children(child)
        yield child


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # gone meanwhile
        for task in (_PROC / str(pid) / "task").iterdir():
            found += map(int, _read(task / "children").split())
    return found


def _members(folder: Path) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for file in folder.rglob("cgroup.procs"):
            yield from map(int, _read(file).split())


def _kill(pid: int) -> bool:
    """Whether it was alive; the dead that nobody has collected yet are not."""
    state = _read(_PROC / str(pid) / "stat").rpartition(b") ")[2][:1]
    if state in (b"", b"Z", b"X"):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return True


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
