"""The cost rule over whole corpora at once: every candidate against every set that requests need.

The same whole nanoseconds as `readie_wire.pricing`, held in float64: below 2^53 sums of integers are
exact in whatever order they are added, so plans do not depend on the machine's linear algebra.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from readie_pipeline.errors import PlanError
from readie_pipeline.plan.demand import Demand
from readie_wire.pricing import load_ns, size_ns

Floats = NDArray[np.float64]
Numbers = Sequence[int] | NDArray[np.int64]

HEAVY = 128  # columns that are looked at one by one even where an estimate will do
_EXACT = 2.0**53


@dataclass(frozen=True, slots=True)
class Budget:
    """Where a plan must end: number of checkpoints, and their memory together in MB."""

    max_checkpoints: int = 15
    size_mb: float = 2048.0


class Costs:
    """Costs in nanoseconds; candidate number c is the set number c of the demand."""

    def __init__(self, demand: Demand, alpha: float) -> None:
        self.alpha = alpha
        self.counts: Floats = np.array(demand.counts, dtype=np.float64)
        self.sizes_mb = [sum(demand.items[name].size_mb for name in names) for names in demand.sets]
        self.size_ns: Floats = np.array([size_ns(alpha, mb) for mb in self.sizes_mb], np.float64)
        self._members, self._load = _columns(demand, self.counts)
        self.cold_ns: Floats = self._members @ self._load
        self._light_ns: Floats = self._members[:, HEAVY:] @ self._load[HEAVY:]
        worst = self.counts.sum() * (self.cold_ns.max(initial=0.0) + self.size_ns.max(initial=0.0))
        if worst >= _EXACT:
            raise PlanError(
                "the corpus is too large for exact sums: it would take 100 days to import"
            )

    def of(self, candidates: Numbers) -> Floats:
        """One row for each candidate, one column for each set: the cost of serving it."""
        held = (self._members[candidates] * self._load) @ self._members.T
        return self._costs(candidates, held)

    def at_least(self, candidates: Numbers) -> Floats:
        """As `of`, at a tenth of the work for large corpora: no cost is above its true value.

        Of the many columns that matter little, all that could be shared is taken to be.
        """
        heavy = self._members[:, :HEAVY]
        held = (heavy[candidates] * self._load[:HEAVY]) @ heavy.T
        held += np.minimum(self._light_ns[candidates][:, None], self._light_ns[None, :])
        return self._costs(candidates, held)

    def alone(self) -> Floats:
        """For each candidate: the total cost were it the only checkpoint."""
        uses = self.counts @ self._members
        requests = self.counts.sum()
        total: Floats = (
            requests * self.size_ns
            + self.counts @ self.cold_ns
            - self._members @ (self._load * uses)
        )
        return total

    def _costs(self, candidates: Numbers, held: Floats) -> Floats:
        costs: Floats = self.size_ns[candidates][:, None] + self.cold_ns[None, :] - held
        return costs


def _columns(demand: Demand, counts: Floats) -> tuple[Floats, Floats]:
    """Sets by groups of items, and the load time of each group, what matters most first.

    Items that are always needed together (a package and what only it pulls in) are one column.
    """
    members: dict[str, list[int]] = {}
    for row, names in enumerate(demand.sets):
        for name in names:
            members.setdefault(name, []).append(row)
    groups: dict[tuple[int, ...], int] = {}
    for name, rows in members.items():
        key = tuple(rows)
        groups[key] = groups.get(key, 0) + load_ns(demand.items[name].load_time)
    weights = {key: load * counts[list(key)].sum() for key, load in groups.items()}
    ordered = sorted(groups, key=lambda key: (-weights[key], key))
    matrix: Floats = np.zeros((len(demand.sets), len(groups)), dtype=np.float64)
    for column, key in enumerate(ordered):
        matrix[list(key), column] = 1.0
    return matrix, np.array([groups[key] for key in ordered], dtype=np.float64)
