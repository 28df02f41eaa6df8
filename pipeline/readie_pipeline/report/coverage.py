"""What a generation does for a corpus, by the cost rule that gateways use."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from readie_wire.catalogue import Catalogue
from readie_wire.pricing import PricedCatalogue


@dataclass(frozen=True, slots=True)
class Coverage:
    """Times in seconds over all workloads.

    ``served`` and ``saved_s`` are by checkpoint id, ``""`` being the cold start. ``still_cold_s``
    are items that are imported at each call even so; ``unknown`` names that nobody has measured,
    with the number of workloads that ask for them.
    """

    workloads: int
    cold_s: float
    chosen_s: float
    served: Mapping[str, int]
    saved_s: Mapping[str, float]
    still_cold_s: Mapping[str, float]
    unknown: Mapping[str, int]

    @property
    def saved_share(self) -> float:
        return (self.cold_s - self.chosen_s) / self.cold_s if self.cold_s else 0.0


def cover(catalogue: Catalogue, requests: Sequence[Sequence[str]]) -> Coverage:
    """Price every workload as a call with nothing against any checkpoint."""
    priced = PricedCatalogue(catalogue)
    cold_s = chosen_s = 0.0
    served: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    saved_s: defaultdict[str, float] = defaultdict(float)
    still_cold_s: defaultdict[str, float] = defaultdict(float)
    for names in requests:
        unknown.update(set(catalogue.resolve(names).unknown))
        cold = priced.quote(names)[0]
        if not cold.missing:
            continue
        chosen = priced.choose(names)
        served[chosen.checkpoint or ""] += 1
        saved_s[chosen.checkpoint or ""] += cold.total_s - chosen.total_s
        cold_s += cold.total_s
        chosen_s += chosen.total_s
        for name in chosen.missing:
            still_cold_s[name] += catalogue.items[name].load_time
    return Coverage(
        workloads=len(requests),
        cold_s=cold_s,
        chosen_s=chosen_s,
        served=served,
        saved_s=saved_s,
        still_cold_s=still_cold_s,
        unknown=unknown,
    )
