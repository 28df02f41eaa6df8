"""What a way of capturing gives: one implementation for each runtime."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from readie_wire.manifest import MappedFile


@dataclass(frozen=True, slots=True)
class Captured:
    """One captured checkpoint. The fields are those of `readie_wire.manifest.CheckpointMeta`.

    ``restore_s`` is filled in once every checkpoint has been captured and timed.
    """

    restore_s: float | None = None
    import_environment: Sequence[str] = ()
    bytes_on_disk: int = 0
    gvisor_version: str = ""
    fingerprint: str = ""
    cpu_features: Sequence[str] = ()
    image_files: Sequence[MappedFile] = ()
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
    def size_matters(self) -> bool:
        """Does a restore take longer for a larger checkpoint, so that alpha can be fitted?"""

    async def open(self) -> None:
        """Check the machine. Raises `CaptureError` with what is missing and how to get it."""

    async def capture(self, checkpoint_id: str, imports: Sequence[str], folder: Path) -> Captured:
        """Capture into the existing ``folder``. Raises `CaptureError` with the reason."""

    async def restore_seconds(self, checkpoint_id: str, folder: Path) -> float:
        """Restore what was captured there once. Raises `CaptureError`: it does not come back."""

    async def cold_seconds(self) -> float:
        """Until a sandbox with a fresh interpreter says HELLO. Raises `CaptureError`."""

    def platform(self) -> Platform:
        """Where it captured. Only after `open`."""

    async def close(self) -> None:
        """End what is still running. Idempotent."""
