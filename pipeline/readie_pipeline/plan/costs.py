"""The cost rule over whole corpora at once: every candidate against every set that requests need.

The same whole nanoseconds as `readie_wire.pricing`, held in float64: below 2^53 sums of integers are
exact in whatever order they are added, so plans do not depend on the machine's linear algebra.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from readie_pipeline.errors import PlanError
from readie_pipeline.plan.demand import Demand
from readie_pipeline.plan.sharing import Floats, Numbers, Sharing
from readie_wire.pricing import size_ns

BLOCK = 64  # candidates priced at once: 64 x 10,000 costs are 5 MB
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
        self._sharing = Sharing(demand)
        self.cold_ns = self._sharing.own()
        worst = self.counts.sum() * (self.cold_ns.max(initial=0.0) + self.size_ns.max(initial=0.0))
        if worst >= _EXACT:
            raise PlanError(
                "the corpus is too large for exact sums: it would take 100 days to import"
            )

    def of(self, candidates: Numbers) -> Floats:
        """One row for each candidate, one column for each set: the cost of serving it."""
        costs = self._sharing.of(candidates)
        np.subtract(self.cold_ns, costs, out=costs)
        costs += self.size_ns[candidates][:, None]
        return costs

    def of_all(self) -> Floats:
        """As `of`, for every candidate."""
        costs: Floats = np.empty((len(self.sizes_mb), len(self.sizes_mb)))
        for block in blocks_of(range(len(costs))):
            costs[block] = self.of(block)
        return costs

    def alone(self) -> Floats:
        """For each candidate: the total cost were it the only checkpoint."""
        total: Floats = (
            self.counts.sum() * self.size_ns
            + self.counts @ self.cold_ns
            - self._sharing.with_all(self.counts)
        )
        return total


def blocks_of(candidates: Sequence[int]) -> Iterator[Sequence[int]]:
    """As many at a time as are well priced together."""
    return (candidates[start : start + BLOCK] for start in range(0, len(candidates), BLOCK))
