"""Alternate runs of contestants, and what is made of their times."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Contestant:
    """One thing to time: ``run`` does one unit of work and returns when it is done."""

    name: str
    run: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Series:
    """The times of one contestant in seconds, in the order they were taken."""

    name: str
    seconds: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def percentile(self, share: float) -> float:
        """The time that ``share`` (0 to 1) of the runs stayed below."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def alternate(
    contestants: Sequence[Contestant], *, rounds: int, per_round: int, warm_up: int = 1
) -> list[Series]:
    """Run each contestant ``per_round`` times a round, turn by turn; ``warm_up`` runs are not kept."""
    times: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for contestant in contestants:
        for _ in range(warm_up):
            contestant.run()
    for _ in range(rounds):
        for contestant in contestants:
            for _ in range(per_round):
                began = time.perf_counter()
                contestant.run()
                times[contestant.name].append(time.perf_counter() - began)
    return [Series(name, taken) for name, taken in times.items()]
