"""What every start of a call would cost, term by term: placement told instead of done."""

from collections.abc import Sequence
from dataclasses import asdict
from heapq import nlargest
from typing import Any

from readie_gateway.fleet import Fleet, PricedGeneration
from readie_gateway.loading import LoadedCatalogue
from readie_gateway.options import CallOptions
from readie_gateway.placement import call_facts, place
from readie_wire.catalogue import Catalogue, Resolution, canonical_distribution
from readie_wire.eligibility import CallFacts, eligible
from readie_wire.envelope import CallHeader
from readie_wire.extracting import Sighting
from readie_wire.pricing import Quote

MISSING_SHOWN = 50  # names listed for one checkpoint; the rest is counted
ITEMS_SHOWN = 500


def explain(
    header: CallHeader,
    options: CallOptions,
    fleet: Fleet,
    catalogues: Sequence[LoadedCatalogue],
    seen: Sequence[Sighting] = (),
) -> dict[str, Any]:
    """The choice that `place` makes, and the price of each alternative. Raises what it raises.

    Takes up to a second where thousands of items are needed, so not on the event loop's own thread.
    """
    placement = place(header, options, fleet, catalogues)
    priced = fleet.priced(placement.flavor)
    explanation: dict[str, Any] = {
        "flavor": placement.flavor,
        "choice": placement.choice.to_json(),
        "imports": list(header.imports),
        "seen": [asdict(one) for one in seen],
        "generation": None,
        "runtime": None,
        "alpha": None,
        "startup": None,
        "matched": {},
        "unknown": list(header.imports),
        "items": [],
        "items_count": 0,
        "quotes": [],
    }
    if not priced:
        return explanation
    generation = priced[0]
    catalogue = generation.priced.catalogue
    facts = call_facts(header, options)
    resolution = catalogue.resolve(header.imports)
    quotes = generation.priced.quote(generation.items_of(tuple(header.imports)))
    return explanation | {
        "generation": generation.generation,
        "runtime": generation.facts.runtime,
        "alpha": catalogue.alpha,
        "startup": asdict(generation.startup),
        "matched": dict(resolution.matched),
        "unknown": list(resolution.unknown),
        "items": [_item(catalogue, name) for name in _shown(catalogue, resolution)],
        "items_count": len(resolution.items),
        "quotes": [_quote(quote, generation, facts) for quote in quotes],
    }


def _shown(catalogue: Catalogue, resolution: Resolution) -> Sequence[str]:
    """What was imported by name, and of what comes with it the slowest."""
    rest = _slowest(catalogue, resolution.items, ITEMS_SHOWN)
    both = dict.fromkeys([*resolution.matched.values(), *rest])
    return _slowest(catalogue, list(both), len(both))


def _slowest(catalogue: Catalogue, names: Sequence[str], count: int) -> list[str]:
    return nlargest(count, names, key=lambda name: catalogue.items[name].load_time)


def _item(catalogue: Catalogue, name: str) -> dict[str, Any]:
    item = catalogue.items[name]
    return {
        "name": name,
        "distribution": item.distribution,
        "version": catalogue.distributions.get(canonical_distribution(item.distribution), ""),
        "load_time_s": item.load_time,
        "size_mb": item.size_mb,
    }


def _quote(quote: Quote, generation: PricedGeneration, facts: CallFacts) -> dict[str, Any]:
    prediction = generation.predict(quote)
    missing = _slowest(generation.priced.catalogue, quote.missing, MISSING_SHOWN)
    return {
        "checkpoint": quote.checkpoint,
        "refused": _refusal(quote.checkpoint, generation, facts),
        "size_mb": _size_mb(quote.checkpoint, generation),
        "size_cost_s": quote.size_cost_s,
        "missing_s": quote.missing_s,
        "total_s": quote.total_s,
        "missing": missing,
        "missing_count": quote.missing_count,
        "start_s": prediction.start_s,
        **asdict(prediction),
    }


def _refusal(
    checkpoint_id: str | None, generation: PricedGeneration, facts: CallFacts
) -> str | None:
    if checkpoint_id is None:
        return None
    checkpoint = generation.checkpoints.get(checkpoint_id)
    if checkpoint is None:
        return "no worker holds it"
    return eligible(facts, checkpoint)


def _size_mb(checkpoint_id: str | None, generation: PricedGeneration) -> float:
    """Also of those that no worker holds, for their size is priced all the same."""
    return 0.0 if checkpoint_id is None else generation.catalogue.facts[checkpoint_id].size_mb
