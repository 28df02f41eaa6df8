"""What a way of capturing gives: one implementation for each runtime."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from readie_pipeline.capture.conditions import Conditions
from readie_wire.manifest import CheckpointMeta


@dataclass(frozen=True, slots=True)
class Platform:
    """Where the checkpoints were captured. The fields are those of `readie_wire.manifest.Manifest`."""

    python: str
    python_path: str
    executor_command: Sequence[str]
    rootfs: str = "host"
    rootfs_digest: str = ""
    gvisor: Mapping[str, Any] = field(default_factory=dict)


def import_seconds(report: Mapping[str, Any]) -> float:
    """What the imports of a capture took, by its executor's report."""
    return float(sum(one["seconds"] for one in report.get("imports", ())))


class Capturer(Protocol):
    """Captures checkpoints of one runtime, one after the other. Use between `open` and `close`."""

    @property
    def runtime(self) -> str: ...

    @property
    def size_matters(self) -> bool:
        """Is what is restored read from disk, so that size is priced by what that takes?"""

    @property
    def stores(self) -> bool:
        """Is a capture on disk afterwards, so that a later process can go on with it?"""

    async def open(self) -> None:
        """Check the machine; end what killed captures have left. Raises `CaptureError` with what
        is missing and how to get it."""

    async def capture(
        self, checkpoint_id: str, imports: Sequence[str], folder: Path
    ) -> CheckpointMeta:
        """Capture into the existing ``folder``. Raises `CaptureError` with the reason.

        The rest of the record is filled in once every checkpoint has been captured and timed.
        """

    async def prove(self, meta: CheckpointMeta, folder: Path) -> None:
        """Take what was captured into ``folder`` earlier, or by somebody else, as captured here.

        Every file is hashed, and it is restored once. Raises `CaptureError` with the reason why it
        is not whole, does not fit here, or does not come back.
        """

    async def restore_seconds(self, checkpoint_id: str, folder: Path) -> float:
        """Restore what was captured there once. Raises `CaptureError`: it does not come back."""

    async def cold_seconds(self) -> float:
        """Until a sandbox with a fresh interpreter says HELLO. Raises `CaptureError`."""

    def platform(self) -> Platform:
        """Where it captures. Only after `open`."""

    def conditions(self) -> Conditions:
        """What checkpoints captured here depend on. Only after `open`."""

    async def close(self) -> None:
        """End what is still running. Idempotent."""
