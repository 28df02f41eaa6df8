"""Who a plan serves: the entries of chosen candidates, with what each one saves."""

from collections.abc import Sequence

import numpy as np

from readie_pipeline.plan.costs import Costs
from readie_pipeline.plan.demand import Demand
from readie_pipeline.plan.plan import PlanEntry

NS = 1_000_000_000  # nanoseconds in a second


def entries_of(demand: Demand, costs: Costs, chosen: Sequence[int]) -> Sequence[PlanEntry]:
    """Each request goes to its cheapest checkpoint, of equal ones to the later, as in pricing."""
    if not chosen:
        return ()
    table = costs.of(list(chosen))
    server = len(chosen) - 1 - np.argmin(table[::-1], axis=0)
    saved = costs.cold_ns - table.min(axis=0)
    entries = []
    for index, candidate in enumerate(chosen):
        served = np.where(server == index, costs.counts, 0.0)
        items = demand.sets[candidate]
        entries.append(
            PlanEntry(
                imports=demand.canonical(items),
                items=items,
                requests=int(served.sum()),
                seconds_saved=round(float(served @ saved) / NS, 6),
                size_mb=round(costs.sizes_mb[candidate], 3),
            )
        )
    return tuple(entries)


def total_s(demand: Demand, costs: Costs, entries: Sequence[PlanEntry]) -> float:
    """The total cost over all requests, each served by its cheapest entry, in seconds."""
    numbers = {items: number for number, items in enumerate(demand.sets)}
    table = costs.of([numbers[tuple(entry.items)] for entry in entries])
    return float(table.min(axis=0) @ costs.counts) / NS
