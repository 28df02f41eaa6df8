"""What a generation does for a corpus, by the cost rule that gateways use."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from readie_wire.catalogue import Catalogue
from readie_wire.manifest import Manifest
from readie_wire.pricing import PricedCatalogue, Quote, predict

COLD = ""  # stands for the id of a checkpoint where there is none: the cold start


@dataclass(slots=True)
class Service:
    """What one start does: how many workloads are given it, and seconds of imports it saves them."""

    workloads: int = 0
    saved_s: float = 0.0


@dataclass(slots=True)
class StillCold:
    """An item that is imported at each call even so: seconds and workloads, over the corpus."""

    seconds: float = 0.0
    workloads: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """How soon one workload's own code is predicted to run, in seconds, and how many ``count`` alike."""

    cold_s: float
    chosen_s: float
    count: int


@dataclass(slots=True)
class Coverage:
    """Over all workloads; seconds are of imports and of size, without the fixed cost of a start.

    ``ready`` workloads find all that they need in a checkpoint, ``partly`` import the rest, ``cold``
    start without one; ``unmeasured`` import only what nobody has measured, ``idle`` nothing at all.
    ``service`` is by checkpoint, `COLD` the cold start; ``unknown`` are names that nobody has
    measured, with the workloads that ask for them. ``starts`` include the fixed cost.
    """

    ready: int = 0
    partly: int = 0
    cold: int = 0
    unmeasured: int = 0
    idle: int = 0
    cold_s: float = 0.0
    chosen_s: float = 0.0
    service: Mapping[str, Service] = field(default_factory=dict)
    still_cold: defaultdict[str, StillCold] = field(default_factory=lambda: defaultdict(StillCold))
    unknown: Counter[str] = field(default_factory=Counter)
    starts: list[Start] = field(default_factory=list)

    @property
    def measured(self) -> int:
        return self.ready + self.partly + self.cold

    @property
    def workloads(self) -> int:
        return self.measured + self.unmeasured + self.idle

    @property
    def saved_share(self) -> float:
        return (self.cold_s - self.chosen_s) / self.cold_s if self.cold_s else 0.0


def cover(
    catalogue: Catalogue,
    manifest: Manifest,
    requests: Sequence[Sequence[str]],
    counts: Sequence[int],
) -> Coverage:
    """Price every workload as a call with nothing against any checkpoint; ``counts`` weigh them."""
    priced = PricedCatalogue(catalogue)
    service = {one.id: Service() for one in catalogue.checkpoints} | {COLD: Service()}
    covered = Coverage(service=service)
    for names, count in zip(requests, counts, strict=True):
        for name in set(catalogue.resolve(names).unknown):
            covered.unknown[name] += count
        cold = priced.quote(names)[0]
        if cold.missing:
            _add(covered, catalogue, manifest, cold, priced.choose(names), count)
        elif names:
            covered.unmeasured += count
        else:
            covered.idle += count
    return covered


def percentile(starts: Sequence[Start], share: float) -> tuple[float, float]:
    """The times, cold and chosen, that ``share`` of the workloads stay within; 0 without any."""
    return (
        _within(((one.cold_s, one.count) for one in starts), share),
        _within(((one.chosen_s, one.count) for one in starts), share),
    )


def _add(
    covered: Coverage,
    catalogue: Catalogue,
    manifest: Manifest,
    cold: Quote,
    chosen: Quote,
    count: int,
) -> None:
    missing = chosen.missing
    if chosen.checkpoint is None:
        covered.cold += count
    else:
        covered.ready += 0 if missing else count
        covered.partly += count if missing else 0
    served = covered.service[chosen.checkpoint or COLD]
    served.workloads += count
    served.saved_s += (cold.total_s - chosen.total_s) * count
    covered.cold_s += cold.total_s * count
    covered.chosen_s += chosen.total_s * count
    cold_s, chosen_s = (
        predict(quote, manifest.startup_s, manifest.runtime).start_s for quote in (cold, chosen)
    )
    covered.starts.append(Start(cold_s, chosen_s, count))
    for name in missing:
        item = covered.still_cold[name]
        item.seconds += catalogue.items[name].load_time * count
        item.workloads += count


def _within(times: Iterator[tuple[float, int]], share: float) -> float:
    ordered = sorted(times)
    left = share * sum(count for _, count in ordered)
    for seconds, count in ordered:
        left -= count
        if left <= 0:
            return seconds
    return 0.0
