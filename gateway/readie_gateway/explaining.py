"""What every start of a call would cost, term by term: placement told instead of done."""

from collections.abc import Sequence
from typing import Any

from readie_gateway.fleet import Fleet, PricedGeneration
from readie_gateway.loading import LoadedCatalogue
from readie_gateway.options import CallOptions
from readie_gateway.placement import call_facts, place
from readie_wire.eligibility import CallFacts, eligible
from readie_wire.envelope import CallHeader
from readie_wire.pricing import Quote

MISSING_SHOWN = 50  # names listed for one checkpoint; the rest is counted


def explain(
    header: CallHeader, options: CallOptions, fleet: Fleet, catalogues: Sequence[LoadedCatalogue]
) -> dict[str, Any]:
    """The choice that `place` makes, and the price of each alternative. Raises what it raises."""
    placement = place(header, options, fleet, catalogues)
    priced = fleet.priced(placement.flavor)
    explanation: dict[str, Any] = {
        "flavor": placement.flavor,
        "choice": placement.choice.to_json(),
        "imports": list(header.imports),
        "generation": None,
        "alpha": None,
        "matched": {},
        "unknown": list(header.imports),
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
        "alpha": catalogue.alpha,
        "matched": dict(resolution.matched),
        "unknown": list(resolution.unknown),
        "quotes": [_quote(quote, generation, facts) for quote in quotes],
    }


def _quote(quote: Quote, generation: PricedGeneration, facts: CallFacts) -> dict[str, Any]:
    missing = quote.missing
    return {
        "checkpoint": quote.checkpoint,
        "refused": _refusal(quote.checkpoint, generation, facts),
        "size_mb": _size_mb(quote.checkpoint, generation),
        "size_cost_s": quote.size_cost_s,
        "missing_s": quote.missing_s,
        "total_s": quote.total_s,
        "missing": missing[:MISSING_SHOWN],
        "missing_count": len(missing),
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
    checkpoint = generation.checkpoints.get(checkpoint_id or "")
    return 0.0 if checkpoint is None else checkpoint.size_mb
