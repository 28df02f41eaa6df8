"""How good can any plan be? A lower bound of the total cost, to hold a greedy plan against.

Choosing checkpoints is a p-median problem. The rule "every request has exactly one server" is
relaxed and priced instead: whatever the prices are, what is left is easy to solve and never costs
more than the best plan. The prices are improved step by step.
"""

from dataclasses import dataclass

import numpy as np

from readie_pipeline.plan.costs import Budget, Costs
from readie_pipeline.plan.serving import NS
from readie_pipeline.plan.sharing import Floats

STEPS = 150  # the bound moves by less than a hundredth after that, on the corpora we have
MAX_CELLS = (
    2_000_000  # candidates x sets: a second or two; above, what greedy planning knows is used
)
_PATIENCE = 10  # steps without a better bound before the step size is halved


@dataclass(frozen=True, slots=True)
class Bound:
    """No plan within the budget costs less than ``total_s`` over all requests."""

    total_s: float


def lower_bound(
    costs: Costs, budget: Budget, known_total_s: float, known_bound_s: float = 0.0
) -> Bound:
    """``known_total_s`` is the total of some plan: it scales the steps.

    ``known_bound_s`` is a bound that is known before; with too many candidates it stays the one.
    """
    candidates = len(costs.size_ns)
    if not candidates or not budget.max_checkpoints:
        return Bound(known_total_s)
    if candidates**2 > MAX_CELLS:
        return Bound(known_bound_s)
    weighted = costs.of_all() * costs.counts
    sizes = np.array(costs.sizes_mb)
    prices = weighted.min(axis=0)
    best = float(prices.sum())  # everybody served by the candidate that suits best
    scale, idle = 1.0, 0
    for _ in range(STEPS):
        gains = np.minimum(weighted - prices, 0.0)
        by_candidate = gains.sum(axis=1)
        chosen = best_fractions(by_candidate, sizes, budget)
        bound = float(prices.sum() + chosen @ by_candidate)
        idle = 0 if bound > best else idle + 1
        best = max(best, bound)
        if idle == _PATIENCE:
            scale, idle = scale / 2, 0
        # Requests that nobody serves get dearer, those with several servers cheaper.
        direction = 1.0 - (chosen[:, None] * (gains < 0)).sum(axis=0)
        length = float(direction @ direction)
        if not length:
            break
        prices = prices + direction * scale * (known_total_s * NS - bound) / length
    return Bound(max(best / NS, known_bound_s))


def best_fractions(gains: Floats, sizes: Floats, budget: Budget) -> Floats:
    """How much of each candidate to take so that the gains, negative or zero, come to most.

    No choice of whole candidates within the budget comes to more. Number and memory are each
    respected alone, and the one that allows less is taken.
    """
    fitting = np.where(sizes <= budget.size_mb, gains, 0.0)
    by_number = np.zeros(len(gains))
    by_number[np.argsort(fitting)[: budget.max_checkpoints]] = 1.0
    weights = np.maximum(sizes, 1e-9)
    order = np.argsort(fitting / weights)
    before = np.concatenate(([0.0], np.cumsum(weights[order])[:-1]))
    by_memory = np.zeros(len(gains))
    by_memory[order] = np.clip((budget.size_mb - before) / weights[order], 0.0, 1.0)
    best = by_number if by_number @ fitting >= by_memory @ fitting else by_memory
    best[sizes > budget.size_mb] = 0.0
    return best
