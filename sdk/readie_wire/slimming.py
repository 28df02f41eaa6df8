"""A catalogue with few dependencies that say what its many do.

Measured catalogues list for each item everything that comes with it: hundreds of MB for some thousand
items. What is priced are closures, and a few dependencies an item give the same ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from readie_wire.catalogue import Catalogue, ItemGraph


def slimmed(catalogue: Catalogue) -> Catalogue:
    """The same items, checkpoints and closures; ``dependencies`` are shorter, and may be others."""
    # Who has more dependencies mostly holds those who have fewer, so the last are tried first.
    by_size = sorted(catalogue.items.items(), key=lambda entry: len(entry[1].dependencies))
    graph = ItemGraph(dict(by_size))
    graph.close_all()
    closures = [graph.closure_of([name]) for name in graph.names]
    circles: dict[int, list[int]] = {}
    for number, closure in enumerate(closures):
        circles.setdefault(closure, []).append(number)
    needs: dict[str, Sequence[str]] = {}
    for closure, members in circles.items():
        for number, others in _of_circle(closure, members, closures).items():
            needs[graph.names[number]] = tuple(sorted(graph.names[other] for other in others))
    items = {
        name: replace(item, dependencies=needs[name]) for name, item in catalogue.items.items()
    }
    return replace(catalogue, items=items)


def _of_circle(
    closure: int, members: Sequence[int], closures: Sequence[int]
) -> Mapping[int, Sequence[int]]:
    """What items of one and the same closure need: each the next one, the first also the rest.

    Items have the same closure where each of them needs the other, and nowhere else.
    """
    rest = closure & ~sum(1 << number for number in members)
    outside = []
    while rest:
        outside.append(rest.bit_length() - 1)
        rest &= ~closures[outside[-1]]
    if len(members) == 1:
        return {members[0]: outside}
    needs = {one: [other] for one, other in zip(members, [*members[1:], members[0]], strict=True)}
    needs[members[0]] += outside
    return needs
