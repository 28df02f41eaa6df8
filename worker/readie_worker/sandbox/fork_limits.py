"""Limits that a plain process can be held to from outside, by `prlimit` (Linux; elsewhere none).

Memory is RLIMIT_DATA: private writable memory, which is what a function allocates. RLIMIT_AS would
count address space, of which numpy and torch reserve far more than they use. Code that meets the
limit gets a MemoryError. Only the soft limits are set, so that the executor can lift its own to
report that error, and the worker can raise one later.
"""

import contextlib
import os
import resource
import sys
import time
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
    memory = limits.memory + mapped + ALLOWANCE_BYTES if limits.memory else resource.RLIM_INFINITY
    _set_soft(pid, resource.RLIMIT_DATA, memory)
    _set_soft(pid, resource.RLIMIT_NOFILE, limits.open_files)
    if own_user:
        _set_soft(pid, resource.RLIMIT_NPROC, limits.pids)
    resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # gone already, or not permitted: it is only a preference
        _write(f"/proc/{pid}/oom_score_adj", OOM_SCORE)


def _set_soft(pid: int, which: int, value: int) -> None:
    if sys.platform == "linux":
        _, hard = resource.prlimit(pid, which)
        if hard != resource.RLIM_INFINITY:
            value = hard if value == resource.RLIM_INFINITY else min(value, hard)
        resource.prlimit(pid, which, (value, hard))


def mapped_memory(pid: int) -> int:
    """Bytes of private writable memory that the process has mapped; 0 where it cannot be told."""
    return _status(pid, "VmData") or 0


def peak_memory(pid: int) -> int | None:
    """The most bytes the process has had resident so far."""
    return _status(pid, "VmHWM")


def out_of_memory_kills() -> int:
    """How many processes this machine's kernel has ended for want of memory since it booted."""
    try:
        counts = Path("/proc/vmstat").read_bytes()
    except OSError:
        return 0
    # A search costs a tenth of splitting the file's 190 lines.
    _, _, rest = counts.partition(b"\noom_kill ")
    number, _, _ = rest.partition(b"\n")
    return int(number or 0)


class OutOfMemoryKills:
    """`out_of_memory_kills` for who asks at every start: the kernel needs 50 µs for the answer."""

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


def _status(pid: int, name: str) -> int | None:
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return None
    _, _, rest = status.partition(f"\n{name}:".encode())
    value = rest.partition(b"\n")[0].split()  # "1234 kB"; a zombie has none
    return int(value[0]) * 1024 if value else None
