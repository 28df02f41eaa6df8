"""How much import time sets of items have in common, for thousands of sets at once.

Items that always occur together (a package and what only it pulls in) count as one group. The
groups that many sets need make a matrix, to be multiplied; of a group that few sets need it is
cheaper to look up which sets these are.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from readie_pipeline.plan.demand import Demand
from readie_wire.pricing import load_ns

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Numbers = Sequence[int] | Integers

# Where one in so many sets needs a group, looking all of them up takes as long as multiplying.
_POPULAR = 16


class Sharing:
    """Load times in whole nanoseconds; set number s is the set number s of the demand.

    Groups that more than one in ``popular`` sets need are multiplied.
    """

    def __init__(self, demand: Demand, popular: int = _POPULAR) -> None:
        groups = _groups(demand)
        sets = len(demand.sets)
        common = sorted(members for members in groups if len(members) * popular > sets)
        rare = sorted(groups.keys() - set(common))
        self._matrix: Floats = np.zeros((sets, len(common)))
        for column, members in enumerate(common):
            self._matrix[list(members), column] = 1.0
        self._common_ns: Floats = np.array([groups[one] for one in common], np.float64)
        self._rare_ns: Floats = np.array([groups[one] for one in rare], np.float64)
        self._sets_by_group = _Lists(rare)
        self._groups_by_set = _Lists(_turned_round(rare, sets))

    def of(self, chosen: Numbers) -> Floats:
        """A row for each chosen set, a column for each set: the load time of what both need."""
        chosen = np.asarray(chosen, np.int64)
        shared: Floats = (self._matrix[chosen] * self._common_ns) @ self._matrix.T
        rows, groups = self._groups_by_set.joined(chosen)
        places, sets = self._sets_by_group.joined(groups)
        cells = (rows * shared.shape[1])[places] + sets
        np.add.at(shared.reshape(-1), cells, self._rare_ns[groups][places])
        return shared

    def with_all(self, weights: Floats) -> Floats:
        """For each set: what it shares with each set, times that one's weight, added up."""
        sets, groups = self._groups_by_set.all()
        common = self._matrix @ (self._common_ns * (weights @ self._matrix))
        rare_ns = self._rare_ns * np.bincount(groups, weights[sets], len(self._rare_ns))
        total: Floats = common + np.bincount(sets, rare_ns[groups], len(weights))
        return total

    def own(self) -> Floats:
        """For each set: the load time of all that it needs."""
        sets, groups = self._groups_by_set.all()
        rare = np.bincount(sets, self._rare_ns[groups], len(self._matrix))
        total: Floats = self._matrix @ self._common_ns + rare
        return total


class _Lists:
    """Lists of numbers, kept end to end in one array."""

    def __init__(self, lists: Sequence[Sequence[int]]) -> None:
        self._numbers: Integers = np.array([n for one in lists for n in one], np.int64)
        self._lengths: Integers = np.array([len(one) for one in lists], np.int64)
        self._starts: Integers = np.cumsum(self._lengths) - self._lengths

    def joined(self, chosen: Integers) -> tuple[Integers, Integers]:
        """The numbers of the chosen lists, and before them for each the place of its list."""
        lengths = self._lengths[chosen]
        places = np.repeat(np.arange(len(chosen)), lengths)
        offsets = self._starts[chosen] - (np.cumsum(lengths) - lengths)
        return places, self._numbers[offsets[places] + np.arange(len(places))]

    def all(self) -> tuple[Integers, Integers]:
        return self.joined(np.arange(len(self._lengths)))


def _groups(demand: Demand) -> dict[tuple[int, ...], int]:
    """The sets that need each group of items, and the group's load time."""
    members: dict[str, list[int]] = {}
    for row, names in enumerate(demand.sets):
        for name in names:
            members.setdefault(name, []).append(row)
    groups: dict[tuple[int, ...], int] = {}
    for name, rows in members.items():
        key = tuple(rows)
        groups[key] = groups.get(key, 0) + load_ns(demand.items[name].load_time)
    return groups


def _turned_round(groups: Sequence[Sequence[int]], sets: int) -> Sequence[Sequence[int]]:
    """The groups that each set needs."""
    by_set: list[list[int]] = [[] for _ in range(sets)]
    for number, members in enumerate(groups):
        for one in members:
            by_set[one].append(number)
    return by_set
