"""The exact planner against trying everything, and the bound that holds for any plan."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readie_pipeline.errors import PlanError
from readie_pipeline.plan.bounding import lower_bound
from readie_pipeline.plan.costs import Budget, Costs
from readie_pipeline.plan.demand import Demand, demand_of
from readie_pipeline.plan.exact import MAX_CANDIDATES, plan_exact
from readie_pipeline.plan.greedy import plan_greedy
from readie_pipeline.plan.plan import Plan
from readie_wire.catalogue import Item
from support.demands import demands, example, total_s

budgets = st.builds(Budget, max_checkpoints=st.integers(1, 4), size_mb=st.floats(50, 1_000))


def total_of(demand: Demand, plan: Plan, alpha: float) -> float:
    chosen = [demand.sets.index(tuple(entry.items)) for entry in plan.entries]
    return total_s(demand, chosen, alpha)


def try_everything(demand: Demand, alpha: float, budget: Budget) -> float:
    sizes = Costs(demand, alpha).sizes_mb
    candidates = range(len(demand.sets))
    return min(
        (
            total_s(demand, chosen, alpha)
            for count in range(1, budget.max_checkpoints + 1)
            for chosen in combinations(candidates, count)
            if sum(sizes[c] for c in chosen) <= budget.size_mb
        ),
        default=float("inf"),
    )


@settings(max_examples=40)
@given(demands(), st.integers(1, 10), budgets)
def test_the_exact_plan_is_the_best_there_is(demand: Demand, alpha_ms: int, budget: Budget) -> None:
    alpha = alpha_ms / 1000
    plan = plan_exact(demand, Costs(demand, alpha), flavor="cpu", budget=budget)
    best = try_everything(demand, alpha, budget)
    if plan.entries:
        assert total_of(demand, plan, alpha) == pytest.approx(best)
        assert sum(entry.size_mb for entry in plan.entries) <= budget.size_mb + 0.01
    else:
        assert best == float("inf")


@settings(max_examples=40)
@given(demands(), st.integers(1, 10), budgets)
def test_no_plan_is_better_than_the_bound(demand: Demand, alpha_ms: int, budget: Budget) -> None:
    alpha = alpha_ms / 1000
    greedy, told = plan_greedy(demand, Costs(demand, alpha), flavor="cpu", budget=budget)
    bound = lower_bound(Costs(demand, alpha), budget, told.total_s)
    if greedy.entries:
        best = try_everything(demand, alpha, budget)
        assert bound.total_s <= best + 1e-6
        assert told.bound_s <= best + 1e-6


def test_the_bound_of_the_worked_example_is_near_its_optimum() -> None:
    budget = Budget()
    plan, told = plan_greedy(example(), Costs(example(), 0.005), flavor="cpu", budget=budget)
    bound = lower_bound(Costs(example(), 0.005), budget, told.total_s)
    assert told.total_s == 11.0
    assert bound.total_s == pytest.approx(11.0, rel=0.01)
    assert total_of(example(), plan, 0.005) == pytest.approx(11.0)


def test_greedy_may_miss_the_best_plan_and_exact_finds_it() -> None:
    # {a, b} alone looks best, and is then in the way of {a} and {b}.
    items = {"a": Item(1.0, 30), "b": Item(1.0, 30), "c": Item(0.0, 1)}
    demand = demand_of([["a"]] * 4 + [["b"]] * 4 + [["a", "b"]], items)
    budget = Budget(max_checkpoints=2)
    greedy, _ = plan_greedy(demand, Costs(demand, 0.01), flavor="cpu", budget=budget)
    exact = plan_exact(demand, Costs(demand, 0.01), flavor="cpu", budget=budget)
    assert total_of(demand, exact, 0.01) < total_of(demand, greedy, 0.01)


def test_a_large_corpus_is_refused_by_the_exact_planner() -> None:
    items = {f"m{number}": Item(1.0, 1) for number in range(MAX_CANDIDATES + 1)}
    demand = demand_of([[name] for name in items], items)
    with pytest.raises(PlanError, match="use greedy"):
        plan_exact(demand, Costs(demand, 0.01), flavor="cpu", budget=Budget())
