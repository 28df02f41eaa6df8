"""The greedy planner: in each round the candidate that lowers the total cost over all requests most.

Every distinct set of items that requests need is a candidate. In the plan's own count every request
is served from a checkpoint; a cold start comes in only when calls are priced. Gains shrink as
checkpoints are added, so a candidate's last known gain is an upper bound of its present one, and most
candidates need not be looked at again in later rounds.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from readie_pipeline.plan.bounding import best_fractions
from readie_pipeline.plan.costs import BLOCK, Budget, Costs, blocks_of
from readie_pipeline.plan.demand import Demand
from readie_pipeline.plan.plan import Plan
from readie_pipeline.plan.serving import NS, entries_of
from readie_pipeline.plan.sharing import Floats

_SHOWN = 5  # candidates of each round that its explanation lists


@dataclass(frozen=True, slots=True)
class Round:
    """One round: the best candidates with the total cost (s) that each would give, best first."""

    totals: Sequence[tuple[Sequence[str], float]]


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a plan came about. Costs in seconds over all requests.

    ``cold_s`` without checkpoints, ``total_s`` with the plan; no plan within the budget comes below
    ``bound_s``.
    """

    rounds: Sequence[Round]
    stopped: str
    cold_s: float
    total_s: float
    bound_s: float


def plan_greedy(
    demand: Demand, costs: Costs, *, flavor: str, budget: Budget
) -> tuple[Plan, Explanation]:
    """Deterministic: of equal candidates the one whose names come first is taken."""
    search = _Search(costs)
    left_mb = budget.size_mb
    rounds: list[Round] = []
    while True:
        if len(search.chosen) == budget.max_checkpoints:
            stopped = f"{budget.max_checkpoints} checkpoints are planned, which is the limit"
            break
        best = search.best(left_mb)
        if not best:
            stopped = search.why_none(left_mb)
            break
        rounds.append(Round([(demand.canonical(demand.sets[c]), t / NS) for c, t in best]))
        search.choose(best[0][0])
        left_mb -= costs.sizes_mb[best[0][0]]
    entries = entries_of(demand, costs, search.chosen)
    explanation = Explanation(
        rounds=rounds,
        stopped=stopped,
        cold_s=float(costs.counts @ costs.cold_ns) / NS,
        total_s=search.total_ns / NS,
        bound_s=search.bound_ns(budget) / NS,
    )
    return Plan("greedy", flavor, costs.alpha, entries), explanation


class _Search:
    """The rounds' state. Candidates are numbers; totals and gains are whole nanoseconds."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self.chosen: list[int] = []
        self.total_ns = float(costs.counts @ costs.cold_ns)
        self._current: Floats = costs.cold_ns
        self._cheapest: Floats = costs.cold_ns  # of each set, were every candidate captured
        # (-gain, candidate, number of chosen when that was its gain: an upper bound ever since).
        self._bounds: list[tuple[float, int, int]] = []
        self._too_large: list[tuple[float, int, int]] = []

    def best(self, left_mb: float) -> Sequence[tuple[int, float]]:
        """The best candidates that fit, as (candidate, total cost with it), the best one first."""
        if not self.chosen:
            return self._best_alone(left_mb)
        self._drop_too_large(left_mb)
        exact: list[tuple[float, int]] = []  # (-gain, candidate), sorted
        while self._bounds and self._bounds[0][0] < 0 and not self._settled(exact):
            exact += self._look_at_next()
            exact.sort()
        for negative, candidate in exact:
            heapq.heappush(self._bounds, (negative, candidate, len(self.chosen)))
        helpful = [(negative, c) for negative, c in exact[:_SHOWN] if negative < 0]
        return [(c, self.total_ns + negative) for negative, c in helpful]

    def choose(self, candidate: int) -> None:
        row = self._costs.of([candidate])[0]
        if self.chosen:
            self._current = np.minimum(self._current, row)
        else:
            self._current = row
            self._look_at_all()
        self.chosen.append(candidate)
        self._bounds = [bound for bound in self._bounds if bound[1] != candidate]
        heapq.heapify(self._bounds)
        self.total_ns = float(self._costs.counts @ self._current)

    def bound_ns(self, budget: Budget) -> float:
        """What no plan comes below.

        Another plan gains over this one at most what each of its checkpoints would gain beside it,
        added up.
        """
        gains = np.zeros(len(self._current))
        for negative, candidate, _ in (*self._bounds, *self._too_large):
            gains[candidate] = negative
        most = best_fractions(gains, np.array(self._costs.sizes_mb), budget) @ gains
        return max(float(self._costs.counts @ self._cheapest), self.total_ns + float(most))

    def why_none(self, left_mb: float) -> str:
        if not self._costs.sizes_mb:
            return "no request needs a measured package"
        if not self.chosen or self._helps_any([c for _, c, _ in self._too_large]):
            return f"no candidate that helps fits the {left_mb:.0f} MB that are left"
        return "no candidate lowers the cost"

    def _helps_any(self, candidates: Sequence[int]) -> bool:
        return any(any(self._gains(self._costs.of(block))) for block in blocks_of(candidates))

    def _best_alone(self, left_mb: float) -> Sequence[tuple[int, float]]:
        totals = self._costs.alone()
        fitting = [c for c, size in enumerate(self._costs.sizes_mb) if size <= left_mb]
        order = sorted(fitting, key=lambda c: (totals[c], c))
        return [(c, float(totals[c])) for c in order[:_SHOWN]]

    def _drop_too_large(self, left_mb: float) -> None:
        # For good: what is left of the budget only shrinks.
        sizes = self._costs.sizes_mb
        self._too_large += [bound for bound in sorted(self._bounds) if sizes[bound[1]] > left_mb]
        self._bounds = [bound for bound in self._bounds if sizes[bound[1]] <= left_mb]
        heapq.heapify(self._bounds)

    def _settled(self, exact: Sequence[tuple[float, int]]) -> bool:
        """No candidate that was not looked at can be among those to be shown."""
        return len(exact) >= _SHOWN and self._bounds[0][:2] > exact[_SHOWN - 1]

    def _look_at_all(self) -> None:
        """The gain of every candidate beside the first chosen one."""
        self._cheapest = self._current
        for block in blocks_of(range(len(self._current))):
            rows = self._costs.of(block)
            self._cheapest = np.minimum(self._cheapest, rows.min(axis=0))
            self._bounds += [
                (-gain, c, 1) for gain, c in zip(self._gains(rows), block, strict=True)
            ]

    def _look_at_next(self) -> list[tuple[float, int]]:
        """The exact gains of the most promising candidates."""
        known: list[tuple[float, int]] = []
        outdated: list[int] = []
        while self._bounds and len(known) + len(outdated) < BLOCK:
            negative, candidate, at = heapq.heappop(self._bounds)
            if at == len(self.chosen):
                known.append((negative, candidate))
            else:
                outdated.append(candidate)
        gains = self._gains(self._costs.of(outdated))
        return known + [(-gain, c) for gain, c in zip(gains, outdated, strict=True)]

    def _gains(self, rows: Floats) -> list[float]:
        """What each row of costs, which is used up, would save."""
        np.subtract(self._current, rows, out=rows)
        np.maximum(rows, 0.0, out=rows)
        gains: list[float] = (rows @ self._costs.counts).tolist()
        return gains
