"""Does a checkpoint fit this worker? Judged for each by itself, with the reason in words."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from readie_wire.manifest import CheckpointMeta


@dataclass(frozen=True, slots=True)
class Here:
    """What a checkpoint is compared with. ``cpu_features`` as the kernel names them."""

    gvisor_version: str
    fingerprint: str
    rootfs_digest: str
    cpu_features: frozenset[str]


def obstacles(meta: CheckpointMeta, here: Here) -> Iterator[str]:
    """What makes a restore impossible or unsafe; strict workers refuse at the first."""
    if meta.gvisor_version != here.gvisor_version:
        yield f"it was captured with gVisor {meta.gvisor_version}, here is {here.gvisor_version}"
    if meta.fingerprint != here.fingerprint:
        yield "it was captured in a sandbox of another shape (spec fingerprint)"
    if meta.rootfs_digest != here.rootfs_digest:
        yield "it was captured on another root filesystem (interpreter, packages or executor)"
    if missing := sorted(set(meta.cpu_features) - here.cpu_features):
        yield f"it needs CPU features that are missing here: {' '.join(missing)}"


def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Of the first processor: a sandbox's kernel asks for all that it was captured with."""
    for line in cpuinfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()
