"""Measures a set of modules and everything they load, each in fresh processes.

Two passes. The first imports each module alone and sees what appears, which gives the items and who
needs whom; the second imports a module behind its dependencies and charges it only for its own part.
Datasets, models and tokenizers go the same way: the modules that appear while one is loaded are what
it needs.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from readie_pipeline.measure.inventory import Inventory
from readie_pipeline.measure.locating import parted
from readie_pipeline.measure.metadata import Measurement, Metadata
from readie_pipeline.measure.probing import Answer, Call, Prober, ProbeRequest
from readie_wire.catalogue import ResourceType

_MB = 1024 * 1024


@dataclass(slots=True)
class _Loaded:
    """What the first pass saw: item to its answer, without those that could not be imported.

    ``failures`` are of asked names only: what a package loads but cannot be imported by its own
    name is a part of that package.
    """

    answers: dict[str, Answer] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def survey(
    names: Iterable[str],
    prober: Prober,
    inventory: Inventory,
    *,
    repeats: int = 3,
    excluded: Sequence[str] = (),
    calls: Mapping[str, Call] | None = None,
) -> Metadata:
    """Measure ``names`` and what they load, without ``excluded`` packages and their parts.

    ``calls`` maps items such as ``model:gpt2`` to what loads them. The median of ``repeats``
    processes counts. What fails, crashes or hangs is in the result's ``failures``; it never stops
    the rest.
    """
    calls = calls or {}
    loaded = _load_alone(names, calls, prober, excluded)
    modules = {name: answer["modules"] for name, answer in loaded.answers.items()}
    dependencies = dependencies_of(modules)
    answers = _load_behind(dependencies, calls, prober, repeats)
    providers = inventory.providers(sorted(answers))
    items: dict[str, Measurement] = {}
    for name, measured in sorted(answers.items()):
        errors = [str(answer["error"]) for answer in measured if "error" in answer]
        if errors:
            loaded.failures[name] = errors[0]
            continue
        items[name] = Measurement(
            load_time=round(statistics.median(answer["import_s"] for answer in measured), 6),
            size_mb=_mb(statistics.median(answer["size_bytes"] for answer in measured)),
            disk_mb=_mb(loaded.answers[name]["disk_bytes"]),
            modules=tuple(sorted(modules[name])),
            dependencies=tuple(sorted(dependencies[name])),
            distribution=providers[name],
            version=inventory.distributions.get(providers[name], ""),
            resource_type=parted(name)[0] if name in calls else ResourceType.PACKAGE,
        )
    return Metadata(inventory.python, items, inventory.distributions, loaded.failures)


def dependencies_of(modules: Mapping[str, Iterable[str]]) -> dict[str, Sequence[str]]:
    """Item → the other items it loads, in an order that loads each behind its own.

    Where two items load each other, the one whose name is nearer to the top (then by alphabet) is
    charged for both, and the other one depends on it.
    """
    loads = {name: set(found) & modules.keys() for name, found in modules.items()}

    def before(first: str, second: str) -> bool:
        return _rank(first) < _rank(second)

    needs = {
        name: {
            other
            for other in found
            if other != name and (name not in loads[other] or before(other, name))
        }
        for name, found in loads.items()
    }
    return {
        name: sorted(found, key=lambda other: (len(loads[other]), _rank(other)))
        for name, found in needs.items()
    }


def units_in(modules: Mapping[str, str]) -> Iterator[str]:
    """The items that a process's modules (name → kind) belong to.

    A package counts as a whole: ``numpy.linalg`` belongs to ``numpy``. A namespace is no package,
    so ``google.cloud.storage.blob`` belongs to ``google.cloud.storage``.
    """
    for name in modules:
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            prefix = ".".join(parts[:length])
            kind = modules.get(prefix)
            if kind == "module":
                yield prefix
            if kind != "namespace":
                break


def is_part_of(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _load_alone(
    names: Iterable[str], calls: Mapping[str, Call], prober: Prober, excluded: Sequence[str]
) -> _Loaded:
    loaded = _Loaded()
    asked = {name for name in names if not is_part_of(name, excluded)}
    needed = _load_resources(calls, prober, loaded)
    waiting, tried = asked | {name for name in needed if not is_part_of(name, excluded)}, set[str]()
    while waiting:
        requests = [ProbeRequest(name) for name in sorted(waiting)]
        found: set[str] = set()
        for request, answer in prober(requests, "importing"):
            if "error" not in answer:
                loaded.answers[request.module] = answer
                found.update(units_in(answer["modules"]))
            elif request.module in asked:
                loaded.failures[request.module] = str(answer["error"])
        tried |= waiting
        waiting = {name for name in found - tried if not is_part_of(name, excluded)}
    return loaded


def _load_resources(calls: Mapping[str, Call], prober: Prober, loaded: _Loaded) -> set[str]:
    """Load each alone; the packages that were needed, with the modules that did it."""
    needed: set[str] = set()
    requests = [ProbeRequest(name, call=call) for name, call in sorted(calls.items())]
    for request, answer in prober(requests, "loading"):
        if "error" in answer:
            loaded.failures[request.module] = str(answer["error"])
            continue
        loaded.answers[request.module] = answer
        needed.update(units_in(answer["modules"]))
        # Its import is no part of loading: `sklearn.datasets` is an item beside `sklearn`.
        needed.update({calls[request.module].module} & answer["modules"].keys())
    return needed


def _load_behind(
    dependencies: Mapping[str, Sequence[str]],
    calls: Mapping[str, Call],
    prober: Prober,
    repeats: int,
) -> Mapping[str, Sequence[Answer]]:
    requests = [
        ProbeRequest(name, tuple(dependencies[name]), repeat, calls.get(name))
        for name in sorted(dependencies)
        for repeat in range(repeats)
    ]
    answers: defaultdict[str, list[Answer]] = defaultdict(list)
    for request, answer in prober(requests, "measuring"):
        answers[request.module].append(answer)
    return answers


def _rank(name: str) -> tuple[int, str]:
    return name.count("."), name


def _mb(size: float) -> float:
    return round(size / _MB, 3)
