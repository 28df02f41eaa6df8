"""Alpha from measured restores: the slope of time over size."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_DECIMALS = 6
_SMALLEST = 10.0**-_DECIMALS
_APART_MB = 0.1  # sizes nearer than this are one size: no line can be told from them


@dataclass(frozen=True, slots=True)
class Fit:
    """``alpha`` in s/MB, ``None`` with the ``reason`` when it cannot be told.

    ``floor_s`` is the part of a restore that does not depend on size.
    """

    alpha: float | None
    floor_s: float
    reason: str = ""


def fit_alpha(sizes_mb: Sequence[float], restores_s: Sequence[float]) -> Fit:
    """A least-squares line. An average of ratios would charge small checkpoints the fixed cost."""
    if not sizes_mb or max(sizes_mb) - min(sizes_mb) < _APART_MB:
        floor = statistics.median(restores_s) if restores_s else 0.0
        return Fit(None, floor, "fewer than two sizes were measured")
    slope, intercept = statistics.linear_regression(sizes_mb, restores_s)
    floor = max(intercept, 0.0)
    if slope <= 0:
        return Fit(None, floor, "larger checkpoints were not slower to restore")
    return Fit(max(round(slope, _DECIMALS), _SMALLEST), floor)
