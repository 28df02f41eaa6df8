"""Memory, CPU and process limits around whole sandboxes, by cgroups of version 1 or 2.

A sandbox is in a group of its own from its first process on, made by us and not by `runsc`, so that
limits can change at any time and both versions are handled alike. Groups lie under
``readie/{owner}/{sandbox}`` at the top of what this machine (or container) sees.
"""

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from readie_worker.sandbox.api import Limits
from readie_worker.sandbox.errors import RuntimeUnavailableError, SandboxError

TOP = "readie"
CONTROLLERS = ("memory", "cpu", "pids")
CPU_PERIOD_US = 100_000  # the kernel's own default
# Threads of gVisor's own kernel and of its window on host files, which count as well.
OWN_PIDS = 128

# Of its limit, for a group that will get more.
SLOW_FROM = 0.95

END_DEADLINE_S = 20.0  # SIGKILL takes milliseconds, freeing gigabytes a little longer
POLL_S = 0.01

# Joins every group given before `--`, then becomes the program after it.
_JOIN = 'for d; do shift; [ "$d" = -- ] && break; echo 0 >"$d/cgroup.procs"; done; exec "$@"'


class LimitError(SandboxError):
    """The kernel does not accept a limit; the message says which."""


@dataclass(frozen=True, slots=True)
class Group:
    """The group of one sandbox: one folder for each v1 controller, or one for all in v2."""

    folders: Mapping[str, Path]
    version: int

    def joining(self) -> tuple[str, ...]:
        """What to put before a command, so that it and its children are in the group."""
        folders = sorted({str(folder) for folder in self.folders.values()})
        return ("/bin/sh", "-c", _JOIN, "sh", *folders, "--")

    def apply(self, limits: Limits) -> None:
        """Set all limits. Raises `LimitError`; one below what is in use already is such a case."""
        memory, cpu, pids = (self.folders[name] for name in CONTROLLERS)
        quota = round(limits.cpus * CPU_PERIOD_US)
        try:
            # Else a sandbox that meets its limit would go on for ever, in a swap that all share.
            swap = memory / ("memory.swap.max" if self.version == 2 else "memory.swappiness")
            if swap.exists():  # where the kernel has swap at all
                _write(swap, 0)
            if self.version == 2:
                # From there on the kernel slows it down, more and more.
                slow_from = round(SLOW_FROM * limits.memory) if limits.growing else "max"
                _write(memory / "memory.high", slow_from)
                _write(memory / "memory.max", limits.memory)
                _write(memory / "memory.oom.group", 1)
                _write(cpu / "cpu.max", f"{quota or 'max'} {CPU_PERIOD_US}")
            else:
                _write(memory / "memory.limit_in_bytes", limits.memory)
                _write(memory / "memory.oom_control", int(limits.growing))  # 1: it waits there
                _write(cpu / "cpu.cfs_quota_us", quota or -1)
            _write(pids / "pids.max", limits.pids + OWN_PIDS)
        except OSError as error:
            raise LimitError(f"cannot set {limits}: {error}") from error

    def out_of_memory_kills(self) -> int:
        """How many of its processes the kernel has ended for the memory limit."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        return _count(self.folders["memory"] / name, "oom_kill")

    def refused_processes(self) -> int:
        """How many more it would have had, but for the limit."""
        return _count(self.folders["pids"] / "pids.events", "max")

    def memory_in_use(self) -> int | None:
        """Bytes without what the kernel gives up by itself before it ends anybody: cached files."""
        folder, version_2 = self.folders["memory"], self.version == 2
        text = _read(folder / ("memory.current" if version_2 else "memory.usage_in_bytes"))
        if not text.strip().isdigit():
            return None
        cached, prefix = 0, "" if version_2 else "total_"
        for line in _read(folder / "memory.stat").splitlines():
            name, _, number = line.partition(" ")
            if name in (f"{prefix}inactive_file", f"{prefix}active_file"):
                cached += int(number)
        return max(0, int(text) - cached)

    def peak_memory(self) -> int | None:
        """Bytes at most so far; `None` where the kernel does not keep it (v2 before 5.19)."""
        name = "memory.peak" if self.version == 2 else "memory.max_usage_in_bytes"
        text = _read(self.folders["memory"] / name)
        return int(text) if text.strip().isdigit() else None

    def pids(self) -> list[int]:
        return [int(pid) for pid in _read(self.folders["pids"] / "cgroup.procs").split()]

    def kill(self) -> None:
        """End the processes that are in it now."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def end(self) -> Set[int]:
        """Kill until nobody is left: who was forked a moment ago is missed by the first round.

        Gives up after `END_DEADLINE_S`, on processes that the kernel does not let go. The pids of
        all that were in it.
        """
        seen: set[int] = set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_DEADLINE_S):
                while pids := self.pids():
                    seen.update(pids)
                    self.kill()
                    await asyncio.sleep(POLL_S)
        return seen

    def remove(self) -> None:
        """Forget the group; one with processes in it, or that is gone, stays as it is."""
        for folder in set(self.folders.values()):
            with contextlib.suppress(OSError):
                folder.rmdir()


class Cgroups:
    """The groups of one worker, ``owner``. See `open_cgroups`."""

    def __init__(self, tops: Mapping[str, Path], version: int, owner: str) -> None:
        self._tops = tops
        self._owner = owner
        self.version = version

    @property
    def folder(self) -> Path:
        """Holds the groups of all sandboxes, and with them every process, once there is one."""
        return self._tops["pids"] / self._owner

    def make(self, name: str) -> Group:
        group = self._group(self._owner, name)
        for folder in group.folders.values():
            folder.mkdir(parents=True, exist_ok=True)
        return group

    def of_owner(self, owner: str) -> list[Group]:
        """The groups that `owner`, this worker or an earlier one, has left."""
        names = {
            folder.name
            for top in self._tops.values()
            if (top / owner).is_dir()
            for folder in (top / owner).iterdir()
            if folder.is_dir()
        }
        return [self._group(owner, name) for name in sorted(names)]

    def forget(self, owner: str) -> None:
        for top in set(self._tops.values()):
            with contextlib.suppress(OSError):
                (top / owner).rmdir()

    def _group(self, owner: str, name: str) -> Group:
        folders = {controller: top / owner / name for controller, top in self._tops.items()}
        return Group(folders, self.version)


def open_cgroups(owner: str, mounts: Path = Path("/proc/self/mounts")) -> Cgroups:
    """Find the controllers and make the top folders.

    Raises `RuntimeUnavailableError` naming the controller that cannot be used.
    """
    found = _mounted(mounts.read_text())
    version = 2 if "2" in found and "memory" not in found else 1
    try:
        if version == 2:
            tops = dict.fromkeys(CONTROLLERS, _open_unified(found["2"]))
            _enable(tops["memory"])
            _enable(_made(tops["memory"] / owner))
        else:
            missing = [name for name in CONTROLLERS if name not in found]
            if missing:
                raise RuntimeUnavailableError(_remedy(f"{', '.join(missing)} not mounted"))
            tops = {name: _made(found[name] / TOP) for name in CONTROLLERS}
    except OSError as error:
        raise RuntimeUnavailableError(_remedy(str(error))) from error
    return Cgroups(tops, version, owner)


def _mounted(table: str) -> dict[str, Path]:
    """Mount point of each v1 controller, and of version 2 under ``"2"``."""
    found: dict[str, Path] = {}
    for line in table.splitlines():
        _, place, kind, options, *_ = line.split(" ")
        if kind == "cgroup2":
            found["2"] = Path(place)
        elif kind == "cgroup":
            found.update({name: Path(place) for name in options.split(",") if name in CONTROLLERS})
    return found


def _open_unified(mount: Path) -> Path:
    """Make the controllers usable below the mount, which in a container is the container's own.

    There the processes of the container sit in that very group, and one with processes of its own
    may not hand out controllers: they move into a group beside ours.
    """
    try:
        _enable(mount)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        beside = _made(mount / f"{TOP}-processes")
        for pid in _read(mount / "cgroup.procs").split():
            with contextlib.suppress(ProcessLookupError):
                _write(beside / "cgroup.procs", pid)
        _enable(mount)
    return _made(mount / TOP)


def _enable(folder: Path) -> None:
    enabled = _read(folder / "cgroup.subtree_control").split()
    if missing := [name for name in CONTROLLERS if name not in enabled]:
        _write(folder / "cgroup.subtree_control", " ".join(f"+{name}" for name in missing))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write(path: Path, value: object) -> None:
    with path.open("w") as file:
        file.write(str(value))


def _read(path: Path) -> str:
    """Empty when the group is gone."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _count(path: Path, wanted: str) -> int:
    """The number behind a word of a file that has one of each a line; 0 where it is not there."""
    for line in _read(path).splitlines():
        word, _, number = line.partition(" ")
        if word == wanted:
            return int(number)
    return 0


def _remedy(problem: str) -> str:
    return (
        f"sandboxes cannot be limited: {problem}; run the worker as root with a writable cgroup "
        "file system (in a container: --privileged, or --cgroupns=private with it mounted rw)"
    )
