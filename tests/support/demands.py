"""Planner inputs: the worked example, arbitrary ones, and their total cost by the gateways' rule."""

from collections.abc import Sequence

from hypothesis import strategies as st

from readie_pipeline.plan.demand import Demand, demand_of
from readie_wire.catalogue import Catalogue, CatalogueCheckpoint, Item
from readie_wire.pricing import PricedCatalogue

REQUESTS = [["pandas"]] * 5 + [["torch"]] * 3 + [["numpy"]] * 2


def example(torch_s: float = 4.0) -> Demand:
    items = {
        "numpy": Item(0.15, 60),
        "pandas": Item(0.90, 80, dependencies=("numpy",)),
        "torch": Item(torch_s, 400, dependencies=("numpy",)),
    }
    return demand_of(REQUESTS, items)


names = [f"m{number}" for number in range(8)]


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    items = {
        name: Item(
            load_time=draw(st.integers(0, 3_000)) / 1000,
            size_mb=draw(st.integers(0, 300)) / 4,
            dependencies=tuple(draw(st.lists(st.sampled_from(names[:index]), max_size=2)))
            if index
            else (),
        )
        for index, name in enumerate(names)
    }
    request = st.lists(st.sampled_from(names), min_size=1, max_size=3)
    return demand_of(draw(st.lists(request, min_size=1, max_size=12)), items)


def total_s(demand: Demand, chosen: Sequence[int], alpha: float) -> float:
    """The plan's total by the rule that gateways use."""
    checkpoints = [
        CatalogueCheckpoint(
            f"c{index}",
            demand.sets[candidate],
            (),
            sum(demand.items[name].size_mb for name in demand.sets[candidate]),
        )
        for index, candidate in enumerate(chosen)
    ]
    priced = PricedCatalogue(Catalogue("cpu", alpha, demand.items, checkpoints))
    return sum(
        count * min(quote.total_s for quote in priced.quote(needs)[1:])
        for needs, count in zip(demand.sets, demand.counts, strict=True)
    )
