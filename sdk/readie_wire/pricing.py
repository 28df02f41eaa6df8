"""The cost rule that the planner, the gateway and the worker share.

``cost = alpha * size_mb + Σ load_time`` of everything a call needs, dependencies included, that the
checkpoint lacks. A cold start has size 0 and lacks everything. Of equal costs the later entry wins,
so an empty checkpoint beats a cold start.

Times are added as whole nanoseconds: sums do not depend on their order, so ties are true ties.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter

from readie_wire.catalogue import Catalogue, Item, ItemGraph
from readie_wire.manifest import StartupSeconds, size_matters

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
    size_mb: float
    size_cost_s: float
    missing_s: float
    total_s: float
    _missing_bits: int = field(repr=False)
    _graph: ItemGraph = field(repr=False, compare=False)

    @property
    def missing(self) -> Sequence[str]:
        """The items that are still to be imported, sorted."""
        return tuple(sorted(self._graph.names_in(self._missing_bits)))

    @property
    def missing_count(self) -> int:
        return self._missing_bits.bit_count()


@dataclass(frozen=True, slots=True)
class Prediction:
    """The time from taking a call to its function behind its imports, in seconds, by what it goes to.

    A price leaves out what any start costs; a prediction takes the time that was measured for a
    size, whatever its price stands for.
    """

    fixed_s: float
    size_s: float
    imports_s: float

    @property
    def start_s(self) -> float:
        return self.fixed_s + self.size_s + self.imports_s


def predict(quote: Quote, startup: StartupSeconds, runtime: str) -> Prediction:
    """What the start that was quoted takes where starting costs ``startup``."""
    cold = quote.checkpoint is None
    return Prediction(
        fixed_s=startup.cold if cold else startup.restore,
        size_s=quote.size_cost_s if size_matters(runtime) else startup.per_mb * quote.size_mb,
        imports_s=quote.missing_s * startup.import_factor,
    )


@dataclass(frozen=True, slots=True)
class _Prices:
    """``needed`` is a set of items; ``cold_ns`` and ``costs_ns`` are totals, the latter by checkpoint."""

    needed: int
    cold_ns: int
    costs_ns: Sequence[int]


class PricedCatalogue:
    """A catalogue made ready for pricing. Immutable, and safe to share between threads.

    Its items are numbered so that those which the same checkpoints hold stand side by side: what a
    call finds in a checkpoint is then added up a run of items at a time.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        holders = _holders(catalogue)
        items = sorted(catalogue.items, key=lambda name: holders.get(name, ()))
        catalogue = replace(catalogue, items={name: catalogue.items[name] for name in items})
        self.catalogue = catalogue
        self._graph = catalogue.graph
        self._graph.close_all()
        self._byte_sums = _byte_sums(catalogue.items)
        self._runs = _runs([holders.get(name, ()) for name in items])
        self._of_runs = [_getter(self._runs, index) for index in range(len(catalogue.checkpoints))]
        self._held = [self._graph.bits_of(one.items) for one in catalogue.checkpoints]
        self._size_ns = [size_ns(catalogue.alpha, one.size_mb) for one in catalogue.checkpoints]
        self._index = {one.id: index for index, one in enumerate(catalogue.checkpoints)}
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._price)

    def quote(self, needs: Iterable[str]) -> Sequence[Quote]:
        """The cold start first, then every checkpoint in the order of the catalogue.

        ``needs`` are import names or item names; each stands for its nearest known item and what
        that depends on. Unknown names are not priced.
        """
        prices = self._prices(needs)
        return tuple(self._quote(prices, index) for index in (None, *range(len(self._held))))

    def quote_of(self, needs: Iterable[str], checkpoint: str | None) -> Quote:
        """One of them. Raises `KeyError` for a checkpoint that is not in the catalogue."""
        index = None if checkpoint is None else self._index[checkpoint]
        return self._quote(self._prices(needs), index)

    def choose(
        self, needs: Iterable[str], eligible: Callable[[str], str | None] = lambda _: None
    ) -> Quote:
        """The cheapest start among the cold one and the checkpoints that are eligible.

        ``eligible`` takes a checkpoint's id and gives the reason why it may not serve, or ``None``.
        """
        prices = self._prices(needs)
        best: int | None = None
        best_ns = prices.cold_ns
        for index, cost_ns in enumerate(prices.costs_ns):
            if cost_ns <= best_ns and eligible(self.catalogue.checkpoints[index].id) is None:
                best, best_ns = index, cost_ns
        return self._quote(prices, best)

    def _prices(self, needs: Iterable[str]) -> _Prices:
        nearest = self._graph.nearest
        items = frozenset(item for name in needs if (item := nearest(name)) is not None)
        return self._remembered(items)

    def _price(self, items: frozenset[str]) -> _Prices:
        needed = self._graph.closure_of(items)
        members = needed.to_bytes(len(self._byte_sums), "little")
        sums = list(map(list.__getitem__, self._byte_sums, members))
        cold_ns = sum(sums)
        held_ns = []  # of what is needed, by run
        for run in self._runs:
            run_ns = sum(sums[run.first : run.last])
            for byte, mask in run.edges:
                run_ns += self._byte_sums[byte][members[byte] & mask]
            held_ns.append(run_ns)
        held_ns.append(0)
        costs_ns = [
            size + cold_ns - sum(of_checkpoint(held_ns))
            for size, of_checkpoint in zip(self._size_ns, self._of_runs, strict=True)
        ]
        return _Prices(needed, cold_ns, costs_ns)

    def _quote(self, prices: _Prices, index: int | None) -> Quote:
        if index is None:
            name, size_mb, size, held, total_ns = None, 0.0, 0, 0, prices.cold_ns
        else:
            checkpoint = self.catalogue.checkpoints[index]
            name, size_mb, size = checkpoint.id, checkpoint.size_mb, self._size_ns[index]
            held, total_ns = self._held[index], prices.costs_ns[index]
        return Quote(
            name,
            size_mb,
            size / _NS,
            (total_ns - size) / _NS,
            total_ns / _NS,
            prices.needed & ~held,
            self._graph,
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """Items of consecutive numbers that the same checkpoints hold, by their indices.

    They fill the bytes ``first`` to ``last`` of a set, and of each byte in ``edges`` the bits of a
    mask.
    """

    holders: tuple[int, ...]
    first: int
    last: int
    edges: Sequence[tuple[int, int]]


def _holders(catalogue: Catalogue) -> Mapping[str, tuple[int, ...]]:
    """Item → indices of the checkpoints that hold it, for items that any holds."""
    found: dict[str, list[int]] = {}
    for index, checkpoint in enumerate(catalogue.checkpoints):
        for name in dict.fromkeys(checkpoint.items):
            found.setdefault(name, []).append(index)
    return {name: tuple(indices) for name, indices in found.items()}


def _runs(holders: Sequence[tuple[int, ...]]) -> Sequence[_Run]:
    """The runs of equal holders, those of none left out; ``holders`` by item number."""
    runs = []
    start = 0
    for number in range(1, len(holders) + 1):
        if number < len(holders) and holders[number] == holders[start]:
            continue
        if holders[start]:
            runs.append(_run(holders[start], start, number))
        start = number
    return runs


def _run(holders: tuple[int, ...], start: int, end: int) -> _Run:
    first, last = -(-start // 8), end // 8
    if first > last:  # it begins and ends in the middle of the same byte
        return _Run(holders, 0, 0, [(last, _bits(start % 8, end % 8))])
    edges = [(start // 8, _bits(start % 8, 8))] if start % 8 else []
    edges += [(last, _bits(0, end % 8))] if end % 8 else []
    return _Run(holders, first, last, edges)


def _getter(runs: Sequence[_Run], checkpoint: int) -> Callable[[Sequence[int]], Sequence[int]]:
    """Takes the values of a checkpoint's runs out of those of all; the value behind them is 0."""
    nothing = len(runs)  # twice, for of one index a getter gives no sequence
    held = [index for index, run in enumerate(runs) if checkpoint in run.holders]
    return itemgetter(*held, nothing, nothing)


def _bits(start: int, end: int) -> int:
    return (1 << end) - (1 << start)


def _byte_sums(items: Mapping[str, Item]) -> list[list[int]]:
    """For each eight items, the load time of every subset of them, by the subset's bits."""
    load = [load_ns(item.load_time) for item in items.values()]
    tables = []
    for start in range(0, len(load), 8):
        sums = [0]
        for own_ns in load[start : start + 8]:
            sums += [earlier + own_ns for earlier in sums]
        tables.append(sums)
    return tables
