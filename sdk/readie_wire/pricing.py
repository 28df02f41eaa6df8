"""The cost rule that the planner, the gateway and the worker share.

``cost = alpha * size_mb + Σ load_time`` of everything a call needs, dependencies included, that the
checkpoint lacks. A cold start has size 0 and lacks everything. Of equal costs the later entry wins,
so an empty checkpoint beats a cold start.

Times are added as whole nanoseconds: sums do not depend on their order, so ties are true ties.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from operator import or_

from readie_wire.catalogue import Catalogue, ItemGraph, numbers_in

_NS = 1_000_000_000
_REMEMBERED = 4_096  # distinct sets of needs; a fleet runs far fewer functions at a time


def load_ns(load_time: float) -> int:
    """Seconds of importing as the whole nanoseconds that costs are added in."""
    return round(load_time * _NS)


def size_ns(alpha: float, size_mb: float) -> int:
    """What a checkpoint's size costs, in whole nanoseconds."""
    return round(alpha * size_mb * _NS)


@dataclass(frozen=True, slots=True)
class Quote:
    """What one start would cost, in seconds. ``checkpoint`` ``None`` is the cold start."""

    checkpoint: str | None
    size_cost_s: float
    missing_s: float
    total_s: float
    _total_ns: int = field(repr=False)
    _missing_bits: int = field(repr=False)
    _graph: ItemGraph = field(repr=False, compare=False)

    @property
    def missing(self) -> Sequence[str]:
        """The items that are still to be imported, sorted."""
        return tuple(sorted(self._graph.names_in(self._missing_bits)))

    def costs_at_most(self, other: "Quote") -> bool:
        """Compares exactly, without the rounding of ``total_s``."""
        return self._total_ns <= other._total_ns


class PricedCatalogue:
    """A catalogue made ready for pricing. Immutable, and safe to share between threads.

    Making one takes up to seconds for a catalogue of hundreds of MB, a quote then microseconds.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._graph = catalogue.graph
        self._graph.close_all()
        self._load_ns = [load_ns(item.load_time) for item in catalogue.items.values()]
        self._byte_sums = _byte_sums(self._load_ns)
        self._held = [self._graph.bits_of(one.items) for one in catalogue.checkpoints]
        self._size_ns = [size_ns(catalogue.alpha, one.size_mb) for one in catalogue.checkpoints]
        self._held_anywhere = reduce(or_, self._held, 0)
        self._holders = _holders(self._held)
        self._quote = lru_cache(maxsize=_REMEMBERED)(self._price)

    def quote(self, needs: Iterable[str]) -> Sequence[Quote]:
        """The cold start first, then every checkpoint in the order of the catalogue.

        ``needs`` are import names or item names; each stands for its nearest known item and what
        that depends on. Unknown names are not priced.
        """
        nearest = self._graph.nearest
        return self._quote(frozenset(item for name in needs if (item := nearest(name)) is not None))

    def choose(
        self, needs: Iterable[str], eligible: Callable[[str], str | None] = lambda _: None
    ) -> Quote:
        """The cheapest start among the cold one and the checkpoints that are eligible.

        ``eligible`` takes a checkpoint's id and gives the reason why it may not serve, or ``None``.
        """
        best, *others = self.quote(needs)
        for quote in others:
            if quote.costs_at_most(best) and eligible(quote.checkpoint or "") is None:
                best = quote
        return best

    def _price(self, items: frozenset[str]) -> Sequence[Quote]:
        needed = self._graph.closure_of(items)
        total_ns = self._sum_ns(needed)
        saved_ns = [0] * len(self._held)
        # Items that the same checkpoints hold are added up first: there are few such groups.
        by_holders: dict[tuple[int, ...], int] = {}
        for number in numbers_in(needed & self._held_anywhere):
            holders = self._holders[number]
            by_holders[holders] = by_holders.get(holders, 0) + self._load_ns[number]
        for shared, shared_ns in by_holders.items():
            for index in shared:
                saved_ns[index] += shared_ns
        quotes = [self._make(None, 0, total_ns, needed)]
        for index, checkpoint in enumerate(self.catalogue.checkpoints):
            missing = needed & ~self._held[index]
            missing_ns = total_ns - saved_ns[index]
            quotes.append(self._make(checkpoint.id, self._size_ns[index], missing_ns, missing))
        return tuple(quotes)

    def _sum_ns(self, bits: int) -> int:
        """The load times of a set of items, eight items at a step."""
        members = bits.to_bytes(len(self._byte_sums), "little")
        return sum(map(list.__getitem__, self._byte_sums, members))

    def _make(self, checkpoint: str | None, size: int, missing_ns: int, missing: int) -> Quote:
        total_ns = size + missing_ns
        return Quote(
            checkpoint,
            size / _NS,
            missing_ns / _NS,
            total_ns / _NS,
            total_ns,
            missing,
            self._graph,
        )


def _byte_sums(load: Sequence[int]) -> list[list[int]]:
    """For each eight items, the sum of every subset of them, by the subset's bits."""
    tables = []
    for start in range(0, len(load), 8):
        sums = [0]
        for own_ns in load[start : start + 8]:
            sums += [earlier + own_ns for earlier in sums]
        tables.append(sums)
    return tables


def _holders(held: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Item number → indices of the checkpoints that hold it, for items that any holds."""
    found: dict[int, list[int]] = {}
    for index, bits in enumerate(held):
        for number in numbers_in(bits):
            found.setdefault(number, []).append(index)
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    return {
        number: shared.setdefault(key, key)
        for number, key in ((number, tuple(indices)) for number, indices in found.items())
    }
