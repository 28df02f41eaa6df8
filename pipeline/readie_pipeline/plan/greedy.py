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

from readie_pipeline.plan.costs import Budget, Costs, Floats
from readie_pipeline.plan.demand import Demand
from readie_pipeline.plan.plan import Plan
from readie_pipeline.plan.serving import NS, entries_of

_BLOCK = 256  # candidates priced at once: 256 x 10,000 costs are 20 MB
_SHOWN = 5  # candidates of each round that its explanation lists


@dataclass(frozen=True, slots=True)
class Round:
    """One round: the best candidates with the total cost (s) that each would give, best first."""

    totals: Sequence[tuple[Sequence[str], float]]


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a plan came about. Costs in seconds over all requests; ``cold_s`` without checkpoints."""

    rounds: Sequence[Round]
    stopped: str
    cold_s: float
    total_s: float


def plan_greedy(
    demand: Demand, *, flavor: str, alpha: float, budget: Budget
) -> tuple[Plan, Explanation]:
    """Deterministic: of equal candidates the one whose names come first is taken."""
    costs = Costs(demand, alpha)
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
    )
    return Plan("greedy", flavor, alpha, entries), explanation


class _Search:
    """The rounds' state. Candidates are numbers; totals and gains are whole nanoseconds."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self.chosen: list[int] = []
        self.total_ns = float(costs.counts @ costs.cold_ns)
        self._current: Floats = costs.cold_ns
        # (-upper bound of the gain, candidate); made in the second round.
        self._bounds: list[tuple[float, int]] = []

    def best(self, left_mb: float) -> Sequence[tuple[int, float]]:
        """The best candidates that fit, as (candidate, total cost with it), the best one first."""
        if not self.chosen:
            totals = self._costs.alone()
            order = sorted(self._fitting(range(len(totals)), left_mb), key=lambda c: (totals[c], c))
            return [(c, float(totals[c])) for c in order[:_SHOWN]]
        return [(c, self.total_ns - gain) for gain, c in self._largest_gains(left_mb)]

    def choose(self, candidate: int) -> None:
        first = not self.chosen
        self.chosen.append(candidate)
        row = self._costs.of([candidate])[0]
        self._current = row if first else np.minimum(self._current, row)
        self.total_ns = float(self._costs.counts @ self._current)
        if first:
            others = [c for c in range(len(self._costs.size_ns)) if c != candidate]
            self._bounds = [(-gain, c) for gain, c in self._gains(others)]
            heapq.heapify(self._bounds)

    def why_none(self, left_mb: float) -> str:
        if not self._costs.sizes_mb:
            return "no request needs a measured package"
        open_gains = [c for negative, c in self._bounds if negative < 0]
        if not self.chosen or any(gain > 0 for gain, _ in self._gains(open_gains)):
            return f"no candidate that helps fits the {left_mb:.0f} MB that are left"
        return "no candidate lowers the cost"

    def _largest_gains(self, left_mb: float) -> Sequence[tuple[float, int]]:
        exact: list[tuple[float, int]] = []  # (-gain, candidate), sorted
        looked_at: list[tuple[float, int]] = []
        while self._bounds:
            enough = len(exact) >= _SHOWN and -self._bounds[0][0] < -exact[_SHOWN - 1][0]
            if enough or self._bounds[0][0] >= 0:
                break
            block = [heapq.heappop(self._bounds)[1] for _ in range(min(_BLOCK, len(self._bounds)))]
            gains = self._gains(block)
            looked_at.extend((-gain, c) for gain, c in gains)
            fitting = set(self._fitting(block, left_mb))
            exact.extend((-gain, c) for gain, c in gains if gain > 0 and c in fitting)
            exact.sort()
        for bound in looked_at:
            heapq.heappush(self._bounds, bound)
        return [(-negative, c) for negative, c in exact[:_SHOWN]]

    def _gains(self, candidates: Sequence[int]) -> list[tuple[float, int]]:
        gains: list[tuple[float, int]] = []
        for start in range(0, len(candidates), _BLOCK):
            block = candidates[start : start + _BLOCK]
            lower = np.maximum(self._current[None, :] - self._costs.of(block), 0.0)
            gains.extend(zip((lower @ self._costs.counts).tolist(), block, strict=True))
        return gains

    def _fitting(self, candidates: Sequence[int] | range, left_mb: float) -> Sequence[int]:
        return [c for c in candidates if self._costs.sizes_mb[c] <= left_mb]
