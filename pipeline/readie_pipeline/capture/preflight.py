"""What must hold before hours of work begin: the right kind of machine, and room for the images."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from readie_pipeline.errors import CaptureError

MACHINES = frozenset({"x86_64", "AMD64"})
EMPTY_MB = 13.0  # the image of an interpreter that has imported nothing
_MB = 1024 * 1024


def require_machine(system: str, machine: str) -> None:
    """Raises `CaptureError`: gVisor saves no process there. Both as `platform` names them."""
    if system != "Linux" or machine not in MACHINES:
        raise CaptureError(
            f"gVisor checkpoints are captured on Linux on x86-64, and this is {system} on {machine}; "
            "capture on such a machine, or use --runtime fork"
        )


def require_room(folder: Path, sizes_mb: Sequence[float]) -> None:
    """``sizes_mb`` is the memory of what each checkpoint holds. Raises `CaptureError`."""
    needed_mb = sum(sizes_mb) + EMPTY_MB * len(sizes_mb)
    free_mb = shutil.disk_usage(folder).free / _MB
    if needed_mb > free_mb:
        raise CaptureError(
            f"{len(sizes_mb)} checkpoints will take about {needed_mb:,.0f} MB, and {free_mb:,.0f} MB "
            f"are free at {folder}; give --out a place with room, or plan fewer or smaller ones "
            "(--max-checkpoints, --size-budget-mb)"
        )
