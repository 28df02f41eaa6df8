"""From a corpus and measurements to a plan, by whichever planner, with its distance from the best."""

from collections.abc import Sequence
from dataclasses import dataclass

from readie_pipeline.errors import PlanError
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.plan.bounding import Bound, lower_bound
from readie_pipeline.plan.costs import Budget, Costs
from readie_pipeline.plan.demand import Demand, demand_of
from readie_pipeline.plan.exact import plan_exact
from readie_pipeline.plan.greedy import Explanation, plan_greedy
from readie_pipeline.plan.plan import Plan
from readie_pipeline.plan.serving import NS, total_s


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan from a corpus. ``cold_s`` and ``total_s`` are over all its requests, in seconds.

    ``explanation`` tells the greedy rounds, ``None`` for the exact planner.
    """

    plan: Plan
    demand: Demand
    cold_s: float
    total_s: float
    bound: Bound
    explanation: Explanation | None = None

    @property
    def gap(self) -> float:
        """At most this share of what could be saved is not saved by the plan."""
        possible = self.cold_s - self.bound.total_s
        return (self.total_s - self.bound.total_s) / possible if possible > 0 else 0.0


def plan_corpus(
    requests: Sequence[Sequence[str]],
    metadata: Metadata,
    *,
    planner: str,
    flavor: str,
    alpha: float,
    budget: Budget,
    counts: Sequence[int] | None = None,
) -> Planned:
    """``planner`` is ``greedy`` or ``exact``; ``counts`` as in `demand_of`. Raises `PlanError`."""
    items = {name: measured.item() for name, measured in metadata.items.items()}
    demand = demand_of(requests, items, counts=counts)
    costs = Costs(demand, alpha)
    explanation = None
    if planner == "exact":
        plan = plan_exact(demand, costs, flavor=flavor, budget=budget)
    elif planner == "greedy":
        plan, explanation = plan_greedy(demand, costs, flavor=flavor, budget=budget)
    else:
        raise PlanError(f"planner {planner!r} does not plan from a corpus; use greedy or exact")
    cold = float(costs.counts @ costs.cold_ns) / NS
    total = total_s(demand, costs, plan.entries) if plan.entries else cold
    known_bound = explanation.bound_s if explanation else 0.0
    bound = lower_bound(costs, budget, total, known_bound)
    return Planned(plan, demand, cold, total, bound, explanation)
