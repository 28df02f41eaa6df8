"""What sets have in common, by matrix and by look-up, against adding it up; a plan by hand."""

from collections.abc import Sequence
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from readie_pipeline.plan.costs import Budget, Costs
from readie_pipeline.plan.demand import Demand, demand_of
from readie_pipeline.plan.greedy import plan_greedy
from readie_pipeline.plan.sharing import Sharing
from readie_wire.catalogue import Item
from readie_wire.pricing import load_ns, size_ns
from support.demands import demands


def shared_ns(demand: Demand, first: Sequence[str], second: Sequence[str]) -> int:
    return sum(load_ns(demand.items[name].load_time) for name in set(first) & set(second))


# With 1 every group is looked up, with 100 every one is multiplied.
@given(demands(), st.sampled_from([1, 2, 3, 100]), st.randoms(use_true_random=False))
def test_both_ways_to_find_what_sets_share_are_exact(
    demand: Demand, popular: int, random: Random
) -> None:
    sets = demand.sets
    table = [[shared_ns(demand, one, other) for other in sets] for one in sets]
    sharing = Sharing(demand, popular)
    chosen = random.choices(range(len(sets)), k=random.randrange(6))
    assert sharing.of(chosen).tolist() == [table[one] for one in chosen]
    assert sharing.own().tolist() == [table[one][one] for one in range(len(sets))]
    weighted = np.array(table) @ np.array(demand.counts)
    assert sharing.with_all(np.array(demand.counts, np.float64)).tolist() == weighted.tolist()


def plan_by_hand(demand: Demand, alpha: float, budget: Budget) -> list[tuple[str, ...]]:
    """The greedy planner as its description says it, with nothing to make it fast."""
    colds = [shared_ns(demand, needs, needs) for needs in demand.sets]
    sizes = {one: sum(demand.items[name].size_mb for name in one) for one in demand.sets}

    def costs(candidate: tuple[str, ...]) -> list[int]:
        size = size_ns(alpha, sizes[candidate])
        return [
            size + cold - shared_ns(demand, candidate, needs)
            for needs, cold in zip(demand.sets, colds, strict=True)
        ]

    table = {one: costs(one) for one in demand.sets}

    def total(chosen: list[tuple[str, ...]]) -> int:
        best = [min(column) for column in zip(*(table[one] for one in chosen), strict=True)]
        return sum(map(int.__mul__, best, demand.counts))

    chosen: list[tuple[str, ...]] = []
    while len(chosen) < budget.max_checkpoints:
        left = budget.size_mb - sum(sizes[one] for one in chosen)
        fitting = [one for one in demand.sets if one not in chosen and sizes[one] <= left]
        ranked = sorted((total([*chosen, one]), one) for one in fitting)
        if not ranked or (chosen and ranked[0][0] >= total(chosen)):
            break
        chosen.append(ranked[0][1])
    return chosen


def test_a_plan_over_hundreds_of_sets_is_that_of_the_rule_alone() -> None:
    random = Random(5)
    names = [f"m{number}" for number in range(60)]
    items = {
        name: Item(
            random.randrange(1_500) / 1000,
            random.randrange(400) / 4,
            dependencies=tuple(random.choices(names[:place], k=random.randrange(3)))
            if place
            else (),
        )
        for place, name in enumerate(names)
    }
    weights = [1 / (place + 1) for place in range(len(names))]
    requests = [random.choices(names, weights, k=random.randrange(1, 4)) for _ in range(250)]
    demand = demand_of(requests, items)
    budget = Budget(max_checkpoints=6, size_mb=1_000)
    plan, _ = plan_greedy(demand, Costs(demand, 0.002), flavor="cpu", budget=budget)
    assert len(demand.sets) > 100
    assert len(plan.entries) > 3
    assert [entry.items for entry in plan.entries] == plan_by_hand(demand, 0.002, budget)
