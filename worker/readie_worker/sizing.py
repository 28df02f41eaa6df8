"""How much this machine has to give: memory and cores, as its cgroups and hardware allow."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

MEMORY_HEADROOM = 0.9  # the rest is for the worker itself and what the kernel keeps for it
LEAST_FOR_CALLS = 3 << 29  # 1.5 GiB: a call of the default size must fit beside what is kept ready
RESIDENT_SHARE = 0.4  # for zygotes at most; a swap of generations needs it twice for a moment
POOL_SHARE = 0.1  # for sandboxes made ahead at most
# Of the memory, for files read ahead of their restores. The kernel takes it back whenever calls
# need it, so it is no share of what is divided.
PREFETCH_SHARE = 0.25

MB = 1_000_000
ZYGOTE_BYTES = 16 << 20  # an interpreter with nothing imported
FORKED_BYTES = 2 << 20  # 0.5 to 1.3 MB were measured
SANDBOX_BYTES = 48 << 20  # gVisor's own part of a restored sandbox

_CGROUP = Path("/sys/fs/cgroup")
_SELF_CGROUP = Path("/proc/self/cgroup")
_UNLIMITED_BYTES = 1 << 60  # cgroup v1 says "no limit" with a number near 2**63


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """How a worker divides its memory, in bytes: what calls may use, and what is kept ready."""

    calls: int
    resident: int
    pool: int

    @classmethod
    def of(cls, total: int) -> "MemoryShares":
        spare = max(0, total - LEAST_FOR_CALLS)
        resident = min(int(total * RESIDENT_SHARE), int(spare * 0.8))
        pool = min(int(total * POOL_SHARE), spare - resident)
        return cls(calls=total - resident - pool, resident=resident, pool=pool)


def resident_bytes(runtime: str, size_mb: float) -> int:
    """What a checkpoint that can be restored keeps in memory: a zygote lives, an image lies on disk."""
    return int(size_mb * MB) + ZYGOTE_BYTES if runtime == "fork" else 0


def idle_bytes(runtime: str, size_mb: object) -> int:
    """What a sandbox made ahead keeps: a forked child shares all but a little with its zygote."""
    if runtime == "fork":
        return FORKED_BYTES
    return SANDBOX_BYTES + int(size_mb * MB if isinstance(size_mb, (int, float)) else 0)


def memory_total(cgroup_root: Path = _CGROUP, self_cgroup: Path = _SELF_CGROUP) -> int:
    """Bytes this worker may give to calls and checkpoints: the tightest limit, less the headroom."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [physical, *_memory_limits(cgroup_root, self_cgroup)]
    return int(min(limits) * MEMORY_HEADROOM)


def core_count(cgroup_root: Path = _CGROUP, self_cgroup: Path = _SELF_CGROUP) -> int:
    """Cores this process may use, at least one: affinity, and a CPU quota rounded up."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quotas = _cpu_quotas(cgroup_root, self_cgroup)
    return max(1, min(cores, *(math.ceil(quota) for quota in quotas)) if quotas else cores)


def _memory_limits(root: Path, self_cgroup: Path) -> list[int]:
    found = []
    for folder in _folders(root, self_cgroup, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name)
            if text.isdigit() and int(text) < _UNLIMITED_BYTES:
                found.append(int(text))
    return found


def _cpu_quotas(root: Path, self_cgroup: Path) -> list[float]:
    found = []
    for folder in _folders(root, self_cgroup, "cpu"):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if not period:
            quota = _read(folder / "cpu.cfs_quota_us")
            period = _read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            found.append(int(quota) / int(period))
    return found


def _folders(root: Path, self_cgroup: Path, controller: str) -> list[Path]:
    """The cgroup folders that bind this process for ``controller``: its own and those above."""
    folders = []
    for line in _read(self_cgroup).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top = root  # v2: one tree for all controllers
        elif controller in controllers.split(","):
            top = root / controllers
        else:
            continue
        own = top / path.lstrip("/")
        folders += [own, *(parent for parent in own.parents if parent.is_relative_to(top))]
    return folders


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
