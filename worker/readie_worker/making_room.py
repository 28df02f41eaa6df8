"""Room on a worker's disk for the bucket's generations: what nobody uses gives way."""

import shutil
from collections.abc import Collection

import structlog

from readie_worker.local_generations import LocalGenerations

RESERVE_BYTES = 512 << 20  # of the disk that are left to everybody else

log = structlog.stdlib.get_logger(__name__)


class DiskRoom:
    """``budget`` in bytes, None for all that the disk can spare. Every method may raise `OSError`."""

    def __init__(self, local: LocalGenerations, budget: int | None) -> None:
        self._local = local
        self._budget = budget

    def left(self) -> int:
        """Bytes; below 0 when more is used than may be."""
        return self._within(
            shutil.disk_usage(self._local.root).free,
            None if self._budget is None else self._budget - self._local.used_bytes(),
        )

    def could_hold(self, needed: int) -> bool:
        """Whether so many bytes fit where nothing else is."""
        return needed <= self._within(shutil.disk_usage(self._local.root).total, self._budget)

    def make(self, needed: int, current: str, previous: Collection[str]) -> str:
        """Why so many bytes cannot be had; empty when they can.

        The least recently used generation goes first. What a rollback would bring back goes last:
        it is worth less than the checkpoints of what is current. Nothing goes for what could not be
        here even if it were alone.
        """
        if self.could_hold(needed):
            for kept in ({current, *previous}, {current}):
                for generation in self._local.removable(kept):
                    if self.left() >= needed:
                        return ""
                    self.remove(generation, "its room is needed")
        left = self.left()
        if left >= needed:
            return ""
        limit = "the disk" if self._budget is None else f"{self._budget} (READIE_DISK_BUDGET)"
        return (
            f"it needs {needed} bytes, and {max(left, 0)} of {limit} are left; {RESERVE_BYTES} of the "
            "disk always stay free"
        )

    def remove(self, generation: str, reason: str) -> None:
        self._local.remove(generation)
        log.info("generation removed", generation=generation, reason=reason)

    def _within(self, disk: int, budget: int | None) -> int:
        spare = disk - RESERVE_BYTES
        return spare if budget is None else min(spare, budget)
