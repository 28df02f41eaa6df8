"""The best plan there is, for small inputs: branch and bound over all sets of candidates."""

import numpy as np

from readie_pipeline.errors import PlanError
from readie_pipeline.plan.costs import Budget, Costs
from readie_pipeline.plan.demand import Demand
from readie_pipeline.plan.greedy import plan_greedy
from readie_pipeline.plan.plan import Plan
from readie_pipeline.plan.serving import entries_of
from readie_pipeline.plan.sharing import Floats

MAX_CANDIDATES = 30  # minutes; a corpus with more distinct sets gets a bound instead


def plan_exact(demand: Demand, costs: Costs, *, flavor: str, budget: Budget) -> Plan:
    """Of equal plans the one that the search meets first, which does not depend on the machine.

    Raises `PlanError` when there are too many candidates.
    """
    if len(demand.sets) > MAX_CANDIDATES:
        raise PlanError(
            f"the corpus has {len(demand.sets)} distinct sets, --planner exact takes at most "
            f"{MAX_CANDIDATES}; use greedy, whose distance from the best plan is printed"
        )
    greedy, _ = plan_greedy(demand, costs, flavor=flavor, budget=budget)
    first = [demand.sets.index(tuple(entry.items)) for entry in greedy.entries]
    chosen = _Search(costs, budget, first).run() if demand.sets else []
    # Larger savings first, as the greedy planner would number them.
    entries = entries_of(demand, costs, chosen)
    ranked = sorted(entries, key=lambda entry: (-entry.seconds_saved, entry.imports))
    return Plan("exact", flavor, costs.alpha, tuple(ranked))


class _Search:
    """Depth first: with and without each candidate, cut off where nothing better can come."""

    def __init__(self, costs: Costs, budget: Budget, first: list[int]) -> None:
        self._counts = costs.counts
        self._table = costs.of_all()
        self._sizes = costs.sizes_mb
        self._budget = budget
        # Row i: the cheapest that candidates i and later could serve each set.
        unserved = np.full((1, self._table.shape[1]), np.inf)
        rows = np.vstack([self._table, unserved])
        self._best_left: Floats = np.minimum.accumulate(rows[::-1], axis=0)[::-1]
        self._best = first
        self._best_ns = self._total(self._table[first].min(axis=0)) if first else np.inf

    def run(self) -> list[int]:
        start = np.full(self._table.shape[1], np.inf)
        self._visit(0, [], start, self._budget.size_mb)
        return self._best

    def _visit(self, index: int, chosen: list[int], current: Floats, left_mb: float) -> None:
        if chosen and (total := self._total(current)) < self._best_ns:
            self._best, self._best_ns = list(chosen), total
        if index == len(self._sizes) or len(chosen) == self._budget.max_checkpoints:
            return
        if self._total(np.minimum(current, self._best_left[index])) >= self._best_ns:
            return
        if self._sizes[index] <= left_mb:
            served = np.minimum(current, self._table[index])
            self._visit(index + 1, [*chosen, index], served, left_mb - self._sizes[index])
        self._visit(index + 1, chosen, current, left_mb)

    def _total(self, costs: Floats) -> float:
        return float(self._counts @ costs)
