"""The greedy planner: the worked example, its limits, and agreement with the shared cost rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie_pipeline.plan.costs import Budget, Costs
from readie_pipeline.plan.demand import Demand, demand_of
from readie_pipeline.plan.greedy import Explanation, plan_greedy
from readie_pipeline.plan.plan import Plan, dump_plan, load_plan
from readie_wire.catalogue import Catalogue, CatalogueCheckpoint, Item, ResourceType
from readie_wire.pricing import PricedCatalogue
from support.demands import demands, example, total_s

AMPLE = Budget(max_checkpoints=100, size_mb=1e9)


def plan(demand: Demand, budget: Budget = AMPLE, alpha: float = 0.005) -> tuple[Plan, Explanation]:
    return plan_greedy(demand, Costs(demand, alpha), flavor="cpu", budget=budget)


def test_the_worked_example_is_planned_round_by_round() -> None:
    made, told = plan(example())
    assert [sorted(totals.totals) for totals in told.rounds] == [
        [(("numpy",), 19.5), (("numpy", "pandas"), 19.0), (("numpy", "torch"), 27.5)],
        [(("numpy",), 17.0), (("numpy", "torch"), 11.8)],
        [(("numpy",), 11.0)],
    ]
    assert [entry.imports for entry in made.entries] == [
        ("numpy", "pandas"),
        ("numpy", "torch"),
        ("numpy",),
    ]
    assert [entry.requests for entry in made.entries] == [5, 3, 2]
    assert [entry.size_mb for entry in made.entries] == [140, 460, 60]
    assert (told.cold_s, told.total_s) == (18.0, 11.0)
    assert told.stopped == "no candidate lowers the cost"


def test_a_recorded_set_counts_as_often_as_it_was_called() -> None:
    items = example().items
    counted = demand_of([["numpy"], ["pandas"], ["torch"]], items, counts=[2, 5, 3])
    assert plan(counted) == plan(example())


def test_what_imports_quickly_is_not_worth_its_size() -> None:
    made, _ = plan(example(torch_s=0.5))
    assert [entry.imports for entry in made.entries] == [("numpy", "pandas"), ("numpy",)]


def test_a_plan_stops_at_the_number_of_checkpoints() -> None:
    made, told = plan(example(), Budget(max_checkpoints=2, size_mb=1e9))
    assert len(made.entries) == 2
    assert told.stopped == "2 checkpoints are planned, which is the limit"


def test_a_plan_stops_at_the_size_budget_and_takes_what_still_fits() -> None:
    made, told = plan(example(), Budget(max_checkpoints=15, size_mb=210))
    assert [entry.imports for entry in made.entries] == [("numpy", "pandas"), ("numpy",)]
    assert told.stopped == "no candidate that helps fits the 10 MB that are left"


def test_equal_candidates_are_taken_by_name() -> None:
    items = {name: Item(1.0, 10) for name in "cab"}
    made, _ = plan(demand_of([["c"], ["a"], ["b"]], items), Budget(max_checkpoints=2))
    assert [entry.imports for entry in made.entries] == [("a",), ("b",)]


def test_rare_packages_are_ignored_and_what_they_need_is_kept() -> None:
    items = {"numpy": Item(1.0, 10), "rare": Item(9.0, 10, dependencies=("numpy",))}
    demand = demand_of([["numpy"]] * 998 + [["rare"]] + [["json"]], items)
    assert demand.sets == [("numpy",)]
    assert demand.counts == [999]
    assert demand.total == 1000


def test_a_model_is_never_preloaded_but_what_loading_it_imports_is() -> None:
    model = Item(9.0, 500, ResourceType.MODEL, dependencies=("joblib", "sklearn"))
    items = {"joblib": Item(1.0, 10), "sklearn": Item(1.0, 10), "model:org/churn-1": model}
    demand = demand_of([["sklearn", "model:org/churn-1"], ["model:org/churn-1.5"]], items)
    assert demand.sets == [("joblib", "sklearn")]
    assert demand.counts == [1]
    made, _ = plan(demand)
    assert [entry.imports for entry in made.entries] == [("joblib", "sklearn")]


def test_what_nobody_names_is_imported_by_what_pulls_it_in() -> None:
    items = {
        "a": Item(1.0, 1),
        "b": Item(1.0, 1, dependencies=("a",)),
        "top": Item(1.0, 1, dependencies=("a", "b")),
    }
    demand = demand_of([["top"]] + [["a"]] * 999, items)
    assert demand.sets == [("a",)]
    everything = demand_of([["top"], ["a"]], items)
    assert everything.canonical(("a", "b", "top")) == ("a", "top")
    assert everything.canonical(("a", "b")) == ("a", "b")


def test_without_known_packages_there_is_no_plan() -> None:
    made, told = plan(demand_of([["json"], []], {}))
    assert made.entries == ()
    assert told.stopped == "no request needs a measured package"


def test_a_plan_reads_back_as_it_was_written() -> None:
    made, _ = plan(example())
    assert load_plan(dump_plan(made)) == made


@given(demands(), st.integers(1, 10))
def test_the_planner_and_the_gateway_price_alike(demand: Demand, alpha_ms: int) -> None:
    alpha = alpha_ms / 1000
    costs = Costs(demand, alpha).of(range(len(demand.sets)))
    checkpoints = [
        CatalogueCheckpoint(f"c{index}", held, (), sum(demand.items[name].size_mb for name in held))
        for index, held in enumerate(demand.sets)
    ]
    priced = PricedCatalogue(Catalogue("cpu", alpha, demand.items, checkpoints))
    for column, needs in enumerate(demand.sets):
        quoted = [quote.total_s for quote in priced.quote(needs)[1:]]
        assert [cost / 1e9 for cost in costs[:, column]] == quoted


@given(demands(), st.integers(1, 10))
def test_every_round_takes_the_best_candidate_there_is(demand: Demand, alpha_ms: int) -> None:
    alpha = alpha_ms / 1000
    made, told = plan(demand, alpha=alpha)
    chosen: list[int] = []
    for entry, round_ in zip(made.entries, told.rounds, strict=True):
        others = [c for c in range(len(demand.sets)) if c not in chosen]
        best = min(total_s(demand, [*chosen, c], alpha) for c in others)
        assert round_.totals[0][1] == pytest.approx(best)
        chosen.append(demand.sets.index(tuple(entry.items)))
    if chosen:
        assert told.total_s == pytest.approx(total_s(demand, chosen, alpha))
        for other in range(len(demand.sets)):
            assert total_s(demand, [*chosen, other], alpha) >= told.total_s - 1e-9


@given(demands(), st.randoms(use_true_random=False))
def test_the_order_of_requests_does_not_matter(demand: Demand, random: object) -> None:
    requests = [one for one, n in zip(demand.sets, demand.counts, strict=True) for _ in range(n)]
    shuffled = requests[:]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert plan(demand_of(requests, demand.items)) == plan(demand_of(shuffled, demand.items))
