"""Where workloads come from that are fetched one by one, and how a run of that is resumed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from readie_pipeline.corpus.dataset import Workload
from readie_pipeline.errors import ServiceError
from readie_pipeline.journal import Journal

Track = Callable[[Sequence[str], str], Iterable[str]]

# One item may be broken for good; when several in a row fail, it is the service.
_FAILURES_IN_A_ROW = 3


@dataclass(frozen=True, slots=True)
class Found:
    """What was looked at: its workload, or ``None``, and what was not right with it."""

    path: str
    workload: Workload | None
    problems: Sequence[str] = ()


class Source(Protocol):
    """A service that has example code."""

    @property
    def key(self) -> str:
        """What is fetched, and from where: two sources with one key give the same for a reference."""

    @property
    def title(self) -> str:
        """For people."""

    def references(self) -> Iterable[str]:
        """What there is to fetch, in an order that stays. Raises `ServiceError`."""

    def fetch(self, reference: str) -> Sequence[Found]:
        """Raises `ServiceError`: the service did not answer; asking again later may help."""


def gather(source: Source, journal: Journal, track: Track) -> Iterator[Found]:
    """All that ``source`` has; what the journal holds is not fetched again.

    An item that cannot be fetched is told as a problem and left for another run. Raises
    `ServiceError` when the service itself is the trouble; the journal keeps what came before.
    """
    failures = 0
    references = list(dict.fromkeys(source.references()))
    for reference in track(references, f"reading {source.title}"):
        key = f"{source.key} {reference}"
        if key in journal.known:
            yield from map(_from_json, journal.known[key])
            continue
        try:
            fetched = source.fetch(reference)
        except ServiceError as error:
            failures += 1
            if failures == _FAILURES_IN_A_ROW:
                raise
            yield Found(reference, None, [str(error)])
            continue
        failures = 0
        journal.add(key, list(map(_to_json, fetched)))
        yield from fetched


def _to_json(found: Found) -> dict[str, Any]:
    workload = found.workload.to_json() if found.workload else None
    return {"path": found.path, "workload": workload, "problems": list(found.problems)}


def _from_json(value: dict[str, Any]) -> Found:
    workload = Workload.from_json(value["workload"]) if value["workload"] else None
    return Found(value["path"], workload, value["problems"])
