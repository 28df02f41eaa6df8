"""What was measured: the file ``data/metadata/{flavor}.json`` and the same in memory."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from readie_pipeline.errors import MeasureError
from readie_wire.catalogue import Item, ResourceType

METADATA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Measurement:
    """One item. Times in seconds, sizes in MB of 2^20 bytes.

    ``dependencies`` are other measured items that it loads; ``modules`` are all third-party modules
    that appear after its import, its own included. ``version`` is its distribution's.
    """

    load_time: float
    size_mb: float
    disk_mb: float = 0.0
    modules: Sequence[str] = ()
    dependencies: Sequence[str] = ()
    distribution: str = ""
    version: str = ""
    resource_type: ResourceType = ResourceType.PACKAGE

    def item(self) -> Item:
        return Item(
            load_time=self.load_time,
            size_mb=self.size_mb,
            resource_type=self.resource_type,
            dependencies=tuple(self.dependencies),
            distribution=self.distribution,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "load_time": self.load_time,
            "size_mb": self.size_mb,
            "disk_mb": self.disk_mb,
            "resource_type": str(self.resource_type),
            "distribution": self.distribution,
            "version": self.version,
            "dependencies": list(self.dependencies),
            "modules": list(self.modules),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            load_time=float(value["load_time"]),
            size_mb=float(value["size_mb"]),
            disk_mb=float(value.get("disk_mb", 0.0)),
            modules=tuple(value.get("modules", ())),
            dependencies=tuple(value.get("dependencies", ())),
            distribution=str(value.get("distribution", "")),
            version=str(value.get("version", "")),
            resource_type=ResourceType(value.get("resource_type", "package")),
        )


@dataclass(frozen=True, slots=True)
class Metadata:
    """All measurements of one interpreter; ``failures`` maps what could not be measured to why."""

    python: str
    items: Mapping[str, Measurement]
    distributions: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    def held_by(self, imports: Iterable[str]) -> Sequence[str]:
        """The items that a process holds once it has imported ``imports``, sorted."""
        loaded: set[str] = set()
        for name in imports:
            measured = self.items.get(name)
            if measured is not None:
                loaded.update(measured.modules, measured.dependencies, (name,))
        return tuple(sorted(loaded & self.items.keys()))

    def size_mb(self, items: Iterable[str]) -> float:
        return round(sum((self.items[name].size_mb for name in items), 0.0), 3)


def load_metadata(data: bytes) -> Metadata:
    """Read the bytes of a metadata file. Raises `MeasureError`."""
    try:
        value = json.loads(data)
        if value["version"] != METADATA_VERSION:
            raise MeasureError(
                f"the metadata has version {value['version']!r}; this build reads {METADATA_VERSION}"
            )
        items = {name: Measurement.from_json(entry) for name, entry in value["items"].items()}
        return Metadata(
            python=str(value["python"]),
            items={name: _with_shared_modules(measured, items) for name, measured in items.items()},
            distributions=dict(value.get("distributions", {})),
            failures=dict(value.get("failures", {})),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MeasureError(f"not a metadata file: {error!r}") from error


def dump_metadata(metadata: Metadata) -> bytes:
    """The bytes of the file: one item a line, so that a new measurement reads well in a diff.

    The modules of an item are written without those of its dependencies: a file in which every
    package repeats numpy's would be twenty times as large.
    """
    own = _own_modules(metadata.items)
    items = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(replace(measured, modules=own[name]).to_json())}"
        for name, measured in sorted(metadata.items.items())
    )
    head = {
        "version": METADATA_VERSION,
        "python": metadata.python,
        "distributions": dict(sorted(metadata.distributions.items())),
        "failures": dict(sorted(metadata.failures.items())),
    }
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items())
    return f'{{\n{lines},\n"items": {{\n{items}\n}}\n}}\n'.encode()


def _own_modules(items: Mapping[str, Measurement]) -> Mapping[str, Sequence[str]]:
    own: dict[str, Sequence[str]] = {}
    # What needs least comes first, so that dependencies have been done.
    for name in sorted(items, key=lambda name: (len(items[name].dependencies), name)):
        shared = (own.get(dependency, ()) for dependency in items[name].dependencies)
        own[name] = sorted(set(items[name].modules).difference(*shared))
    return own


def _with_shared_modules(measured: Measurement, items: Mapping[str, Measurement]) -> Measurement:
    shared = (items[name].modules for name in measured.dependencies if name in items)
    return replace(measured, modules=tuple(sorted(set(measured.modules).union(*shared))))
