"""Whether what workloads use exists: each resource is asked of the service that owns it."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import Protocol

from readie_pipeline.corpus.answers import Answers
from readie_pipeline.corpus.dataset import PREFIXES, Resources, Workload, label
from readie_pipeline.corpus.distribution_names import distributions_for, importable_unit
from readie_pipeline.corpus.finding import KAGGLE, SKLEARN
from readie_pipeline.corpus.sources import Track
from readie_pipeline.errors import ServiceError
from readie_wire.extracting import is_standard_library

_AT_ONCE = 4  # questions to all services together: polite, and several times quicker than one


class Owner(Protocol):
    """A service that knows whether something exists; asked by several threads."""

    @property
    def title(self) -> str:
        """For people."""

    @property
    def identity(self) -> str:
        """Tells it from others whose answers may differ. No credentials: it is written down."""

    def exists(self, kind: str, name: str) -> bool:
        """``kind`` is a field of `Resources`. Raises `ServiceError`: it cannot say now."""


@dataclass(frozen=True, slots=True)
class Owners:
    """Who is asked about what."""

    index: Owner
    hub: Owner
    kaggle: Owner

    def of(self, kind: str, name: str) -> Owner:
        if kind == "packages":
            return self.index
        return self.kaggle if name.startswith(KAGGLE) else self.hub


@dataclass(frozen=True, slots=True)
class Checked:
    """``unknown`` counts the workloads that each dropped name was dropped from.

    ``silent`` maps the services that could not say to why.
    """

    workloads: Sequence[Workload]
    unknown: Mapping[str, int]
    silent: Mapping[str, str]


def check(
    workloads: Sequence[Workload],
    owners: Owners,
    installed: Collection[str],
    answers: Answers,
    track: Track,
) -> Checked:
    """Drop what does not exist, and mark what nobody could tell.

    ``installed`` are the packages, dotted, that the interpreter which is to be measured has. They
    and the standard library need no question.
    """
    asking = _Asking(owners, answers)
    asking.ask(set(_questions(workloads, installed)), track)
    verdicts = _Verdicts(installed, asking.known)
    unknown: Counter[str] = Counter()
    kept = []
    for workload in workloads:
        checked, dropped = verdicts.apply(workload)
        kept.append(checked)
        unknown.update(dropped)
    return Checked(kept, unknown, asking.silent)


def _questions(
    workloads: Iterable[Workload], installed: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Kind and name, each as its owner knows it."""
    for workload in workloads:
        resources = workload.resources
        for unit in map(importable_unit, (*resources.packages, *resources.candidates)):
            if not _is_at_hand(unit, installed):
                yield from (("packages", name) for name in distributions_for(unit))
        for kind in PREFIXES:
            for name in getattr(resources, kind):
                if not name.startswith(SKLEARN):  # scikit-learn itself knows where it gets it
                    yield kind, name


def _is_at_hand(unit: str, installed: Collection[str]) -> bool:
    """Of a namespace, only its part that is installed is."""
    parts = unit.split(".")
    return is_standard_library(unit) or any(
        ".".join(parts[:size]) in installed for size in range(1, len(parts) + 1)
    )


@dataclass(slots=True)
class _Asking:
    """One run of questions. A service that could not say once is not asked again in it."""

    owners: Owners
    answers: Answers
    silent: dict[str, str] = field(default_factory=dict)

    def ask(self, questions: Collection[tuple[str, str]], track: Track) -> None:
        open_ = sorted(one for one in questions if self.known(*one) is None)
        if not open_:
            return
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            asked = {pool.submit(self._exists, *one): one for one in open_}
            coming = as_completed(asked)
            try:
                for _ in track([name for _, name in open_], "checking"):
                    done = next(coming)
                    answer = done.result()
                    if answer is not None:
                        kind, name = asked[done]
                        owner = self.owners.of(kind, name)
                        self.answers.add(owner.identity, kind, name, exists=answer)
            finally:
                pool.shutdown(cancel_futures=True)

    def known(self, kind: str, name: str) -> bool | None:
        return self.answers.get(self.owners.of(kind, name).identity, kind, name)

    def _exists(self, kind: str, name: str) -> bool | None:
        owner = self.owners.of(kind, name)
        if owner.title in self.silent:
            return None
        try:
            return owner.exists(kind, name)
        except ServiceError as error:
            self.silent[owner.title] = str(error)
            return None


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """``True``: it exists. ``False``: it does not. ``None``: nobody could say."""

    installed: Collection[str]
    known: Callable[[str, str], bool | None]

    def apply(self, workload: Workload) -> tuple[Workload, set[str]]:
        """The workload as it may stay, and the names that it loses."""
        found: dict[str, tuple[str, ...]] = {}
        unknown: set[str] = set()
        unchecked: dict[str, None] = {}
        for kind in Resources.__dataclass_fields__:
            kept = []
            for name in getattr(workload.resources, kind):
                verdict = self._of(kind, name)
                shown = label(kind, name) if kind in PREFIXES else importable_unit(name)
                if verdict is False:
                    unknown.add(shown)
                    continue
                if verdict is None:
                    unchecked[shown] = None
                kept.append(name)
            found[kind] = tuple(kept)
        checked = replace(workload, resources=Resources(**found), unchecked=tuple(unchecked))
        return checked, unknown

    def _of(self, kind: str, name: str) -> bool | None:
        if kind in PREFIXES:
            return True if name.startswith(SKLEARN) else self.known(kind, name)
        unit = importable_unit(name)
        distributions = distributions_for(unit)
        if not distributions or _is_at_hand(unit, self.installed):
            return True
        verdicts = [self.known("packages", one) for one in distributions]
        return True if True in verdicts else None if None in verdicts else False
