"""Limits that a plain process can be held to from outside, by `prlimit` (Linux; elsewhere none).

Memory is RLIMIT_DATA: private writable memory, which is what a function allocates. RLIMIT_AS would
count address space, of which numpy and torch reserve far more than they use. Code that meets the
limit gets a MemoryError. Only the soft limits are set, so that the executor can lift its own to
report that error, and the worker can raise one later.
"""

import contextlib
import functools
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from readie_worker.sandbox.api import Limits

ALLOWANCE_BYTES = 32 << 20  # for the executor itself: unpickling, import machinery, thread stacks
OOM_SCORE = b"500"  # of 1000: when the machine runs out of memory, a sandbox goes before the worker
KILLS_AGE_S = 1.0  # an older kill than a sandbox is not taken for its own, but for this long

# `resource.prlimit` and /proc exist on Linux only.
SUPPORTED = sys.platform == "linux"


def apply(pid: int, limits: Limits, mapped: int, *, own_user: bool) -> None:
    """Hold the process, and what it starts from now on, to the limits.

    ``mapped``: bytes it shares with its zygote, which the call does not pay for. ``own_user``: it
    has a user id of its own, so the kernel can count its processes. Raises `ProcessLookupError`.
    """
    if sys.platform != "linux":
        return
    _set_soft(pid, resource.RLIMIT_DATA, _data_limit(limits, mapped))
    _set_soft(pid, resource.RLIMIT_NOFILE, limits.open_files)
    if own_user:
        _set_soft(pid, resource.RLIMIT_NPROC, limits.pids)
    resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # gone already, or not permitted: it is only a preference
        _write(f"/proc/{pid}/oom_score_adj", OOM_SCORE)


def raise_memory(pid: int, limits: Limits, mapped: int) -> None:
    """Let the process and all that it has started use so much; those that end meanwhile do not."""
    for one in (pid, *_descendants(pid)):
        with contextlib.suppress(ProcessLookupError):
            _set_soft(one, resource.RLIMIT_DATA, _data_limit(limits, mapped))


def _data_limit(limits: Limits, mapped: int) -> int:
    memory = max(limits.memory, limits.max_memory)
    return memory + mapped + ALLOWANCE_BYTES if memory else resource.RLIM_INFINITY


def _set_soft(pid: int, which: int, value: int) -> None:
    if sys.platform == "linux":
        _, hard = resource.prlimit(pid, which)
        if hard != resource.RLIM_INFINITY:
            value = hard if value == resource.RLIM_INFINITY else min(value, hard)
        resource.prlimit(pid, which, (value, hard))


def memory_in_use(pid: int, mapped: int) -> int | None:
    """Bytes that count against the limit: mapped by the process itself, used by its descendants.

    These share pages with it after a fork, so each is counted with its portion of them.
    """
    own = _status(pid, "VmData")
    if own is None:
        return None
    shares = (_field(f"/proc/{one}/smaps_rollup", "Pss_Anon") or 0 for one in _descendants(pid))
    return max(0, own - mapped - ALLOWANCE_BYTES) + sum(shares)


def mapped_memory(pid: int) -> int:
    """Bytes of private writable memory that the process has mapped; 0 where it cannot be told."""
    return _status(pid, "VmData") or 0


def peak_memory(pid: int) -> int | None:
    """The most bytes the process has had resident so far."""
    return _status(pid, "VmHWM")


def out_of_memory_kills() -> int:
    """How many processes the kernel has ended for want of memory: of our memory cgroup, where it tells.

    Sandboxes are in it as well. Elsewhere it is the whole machine's number since it booted, which
    counts what met the limits of others.
    """
    for file in (*_own_counts(), "/proc/vmstat"):
        # A search costs a tenth of splitting the 190 lines of the last one.
        _, found, rest = (b"\n" + _read(file)).partition(b"\noom_kill ")
        if found:
            return int(rest.partition(b"\n")[0])
    return 0


@functools.cache
def _own_counts() -> Sequence[str]:
    """Files in which our memory cgroup may tell, of version 1 and of version 2."""
    found = []
    for line in _read("/proc/self/cgroup").decode().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            found.append(f"/sys/fs/cgroup/memory{path}/memory.oom_control")
        elif not controllers:
            found.append(f"/sys/fs/cgroup{path}/memory.events")
    return found


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError:
        return b""


class OutOfMemoryKills:
    """`out_of_memory_kills` for who asks at every start: the kernel may need 50 µs for the answer."""

    def __init__(self) -> None:
        self._count = 0
        self._read_at = -KILLS_AGE_S

    def lately(self) -> int:
        """The count, at most `KILLS_AGE_S` old."""
        now = time.monotonic()
        if now - self._read_at >= KILLS_AGE_S:
            self._count, self._read_at = out_of_memory_kills(), now
        return self._count


def _write(path: str, data: bytes) -> None:
    """At every start: pathlib takes four times as long."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    to_visit = [pid]
    while to_visit:
        try:
            tasks = list(Path(f"/proc/{to_visit.pop()}/task").iterdir())
            children = [int(word) for task in tasks for word in _words(task / "children")]
        except OSError:  # it is gone
            continue
        found += children
        to_visit += children
    return found


def _words(path: Path) -> list[bytes]:
    return path.read_bytes().split()


def _status(pid: int, name: str) -> int | None:
    return _field(f"/proc/{pid}/status", name)


def _field(file: str, name: str) -> int | None:
    try:
        status = Path(file).read_bytes()
    except OSError:
        return None
    _, _, rest = status.partition(f"\n{name}:".encode())
    value = rest.partition(b"\n")[0].split()  # "1234 kB"; a zombie has none
    return int(value[0]) * 1024 if value else None
