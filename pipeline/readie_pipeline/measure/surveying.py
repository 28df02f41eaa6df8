"""Measures a set of modules and everything they load, each in fresh processes.

Two passes. The first imports each module alone and sees what appears, which gives the items and who
needs whom; the second imports a module behind its dependencies and charges it only for its own part.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from readie_pipeline.errors import MeasureError
from readie_pipeline.measure.interpreter import INVENTORY, PROBE, Interpreter
from readie_pipeline.measure.metadata import Measurement, Metadata
from readie_wire.catalogue import ResourceType

# Goes through a sequence of names and may show how far it is.
Track = Callable[[Sequence[str], str], Iterable[str]]

_MB = 1024 * 1024
_INVENTORY_S = 300.0  # reading the records of thousands of distributions from a slow disk


@dataclass(frozen=True, slots=True)
class SurveyOptions:
    """``timeout`` in seconds for one process; ``repeats`` processes a module, the median counts."""

    timeout: float = 120.0
    repeats: int = 3


@dataclass(slots=True)
class _Loaded:
    """What the first pass saw: item → the kinds of all third-party modules it loads.

    ``failures`` are of asked names only: what a package loads but cannot be imported by its own
    name is a part of that package.
    """

    modules: dict[str, Mapping[str, str]] = field(default_factory=dict)
    disk_bytes: dict[str, int] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def survey(
    interpreter: Interpreter,
    names: Iterable[str],
    options: SurveyOptions,
    track: Track,
) -> Metadata:
    """Measure ``names`` and what they load.

    A module that fails, crashes or hangs is in the result's ``failures``; it never stops the rest.
    Raises `MeasureError` only when the interpreter itself does not work.
    """
    loaded = _load_alone(interpreter, names, options, track)
    dependencies = dependencies_of(loaded.modules)
    inventory = interpreter.run(INVENTORY, {"modules": sorted(loaded.modules)}, _INVENTORY_S)
    items: dict[str, Measurement] = {}
    for name in track(sorted(loaded.modules), "measuring"):
        try:
            answers = _measure(interpreter, name, dependencies[name], options)
        except MeasureError as error:
            loaded.failures[name] = str(error)
            continue
        provider = inventory["providers"].get(name, "")
        items[name] = Measurement(
            load_time=round(statistics.median(answer["import_s"] for answer in answers), 6),
            size_mb=_mb(statistics.median(answer["size_bytes"] for answer in answers)),
            disk_mb=_mb(loaded.disk_bytes[name]),
            modules=tuple(sorted(loaded.modules[name])),
            dependencies=tuple(sorted(dependencies[name])),
            distribution=provider,
            version=inventory["distributions"].get(provider, ""),
            resource_type=ResourceType.PACKAGE,
        )
    return Metadata(
        python=inventory["python"],
        items=items,
        distributions=inventory["distributions"],
        failures=loaded.failures,
    )


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


def _load_alone(
    interpreter: Interpreter, names: Iterable[str], options: SurveyOptions, track: Track
) -> _Loaded:
    loaded = _Loaded()
    asked = set(names)
    tried: set[str] = set()
    waiting = asked
    while waiting:
        found: set[str] = set()
        for name in track(sorted(waiting), "importing"):
            try:
                answer = _probe(interpreter, name, (), options.timeout)
            except MeasureError as error:
                if name in asked:
                    loaded.failures[name] = str(error)
                continue
            loaded.modules[name] = answer["modules"]
            loaded.disk_bytes[name] = answer["disk_bytes"]
            found.update(units_in(answer["modules"]))
        tried |= waiting
        waiting = found - tried
    return loaded


def _measure(
    interpreter: Interpreter, name: str, dependencies: Sequence[str], options: SurveyOptions
) -> Sequence[Mapping[str, Any]]:
    return [
        _probe(interpreter, name, dependencies, options.timeout) for _ in range(options.repeats)
    ]


def _probe(
    interpreter: Interpreter, name: str, before: Sequence[str], timeout: float
) -> Mapping[str, Any]:
    answer: Mapping[str, Any] = interpreter.run(
        PROBE, {"module": name, "before": list(before)}, timeout
    )
    if "error" in answer:
        raise MeasureError(str(answer["error"]))
    return answer


def _rank(name: str) -> tuple[int, str]:
    return name.count("."), name


def _mb(size: float) -> float:
    return round(size / _MB, 3)
