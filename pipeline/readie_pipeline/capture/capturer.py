"""What a way of capturing gives: one implementation for each runtime."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from readie_wire.manifest import MappedFile


@dataclass(frozen=True, slots=True)
class Captured:
    """One captured checkpoint. The fields are those of `readie_wire.manifest.CheckpointMeta`."""

    restore_s: float | None = None
    import_environment: Sequence[str] = ()
    bytes_on_disk: int = 0
    gvisor_version: str = ""
    fingerprint: str = ""
    cpu_features: Sequence[str] = ()
    mapped_files: Sequence[MappedFile] = ()
    gate: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Platform:
    """Where the checkpoints were captured. The fields are those of `readie_wire.manifest.Manifest`."""

    python: str
    python_path: str
    executor_command: Sequence[str]
    rootfs: str = "host"
    rootfs_digest: str = ""
    gvisor: Mapping[str, Any] = field(default_factory=dict)


class Capturer(Protocol):
    """Captures checkpoints of one runtime, one after the other. Use between `open` and `close`."""

    @property
    def runtime(self) -> str: ...

    @property
    def measures_size_cost(self) -> bool:
        """Does a restore take longer for a larger checkpoint, so that alpha can be fitted?"""

    async def open(self) -> None:
        """Check the machine. Raises `CaptureError` with what is missing and how to get it."""

    async def capture(self, checkpoint_id: str, imports: Sequence[str], folder: Path) -> Captured:
        """Capture into the existing ``folder`` and time a restore.

        Raises `CaptureError` with the reason; nothing keeps running then.
        """

    async def cold_seconds(self) -> float:
        """The median time until a sandbox with a fresh interpreter says HELLO."""

    def platform(self) -> Platform:
        """Where it captured. Only after `open`."""

    async def close(self) -> None:
        """End what is still running. Idempotent."""
