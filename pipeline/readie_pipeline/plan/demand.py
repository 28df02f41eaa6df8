"""What a corpus asks for: distinct sets of items, with how many requests need each."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from readie_wire.catalogue import Item, ItemGraph, ResourceType

# Packages that fewer requests need would only add candidates that never pay.
RARE_SHARE = 0.002


@dataclass(frozen=True)
class Demand:
    """The planner's input.

    ``sets`` are sorted tuples of item names, closed under dependencies and without rare items;
    ``counts`` how many requests need each; both in the order of the names. ``asked`` are the items
    that some request names itself; ``total`` counts all requests, those that need nothing known
    included.
    """

    items: Mapping[str, Item]
    sets: Sequence[tuple[str, ...]]
    counts: Sequence[int]
    asked: frozenset[str]
    total: int

    @cached_property
    def _graph(self) -> ItemGraph:
        return ItemGraph(self.items)

    def canonical(self, items: Iterable[str]) -> tuple[str, ...]:
        """What to import so that ``items`` are loaded: those asked for, and what they miss."""
        wanted = set(items)
        graph = self._graph
        chosen = [name for name in sorted(wanted) if name in self.asked]
        loaded = set(graph.names_in(graph.closure_of(chosen)))
        # Largest closure first: a dependency never needs to be named beside what pulls it in.
        rest = sorted(wanted - loaded, key=lambda n: (-graph.closure_of([n]).bit_count(), n))
        for name in rest:
            if name not in loaded:
                chosen.append(name)
                loaded.update(graph.names_in(graph.closure_of([name])))
        return tuple(sorted(chosen))

    def leading(self, names: Sequence[str]) -> tuple[str, ...]:
        """The names that no other of them pulls in: what a checkpoint is about, for people."""
        return self._graph.leading(names)


def demand_of(
    requests: Sequence[Sequence[str]],
    items: Mapping[str, Item],
    rare_share: float = RARE_SHARE,
    counts: Sequence[int] | None = None,
) -> Demand:
    """Reduce requests (each a list of import names) to the items they need.

    ``counts`` is how often each was made; without it, once.
    Names that are no items, the standard library's among them, are left out. A dataset, model or
    tokenizer counts as the packages that loading it needs: a checkpoint holds imports, and only those.
    """
    graph = ItemGraph(items)
    needs: Counter[int] = Counter()
    asked: set[str] = set()
    counts = counts or [1] * len(requests)
    for names, count in zip(requests, counts, strict=True):
        found = {item for name in names if (item := graph.nearest(name)) is not None}
        asked |= found
        needs[graph.closure_of(found)] += count
    members = {bits: tuple(graph.names_in(bits)) for bits in needs}
    uses: Counter[str] = Counter()
    for bits, count in needs.items():
        for name in members[bits]:
            uses[name] += count
    kept = {
        name
        for name, count in uses.items()
        if count >= rare_share * sum(counts) and items[name].resource_type is ResourceType.PACKAGE
    }
    sets: Counter[tuple[str, ...]] = Counter()
    for bits, count in needs.items():
        common = kept.intersection(members[bits])
        if common:
            sets[tuple(sorted(common))] += count
    ordered = sorted(sets)
    return Demand(
        items={name: item for name, item in items.items() if name in kept},
        sets=ordered,
        counts=[sets[one] for one in ordered],
        asked=frozenset(asked & kept),
        total=sum(counts),
    )
