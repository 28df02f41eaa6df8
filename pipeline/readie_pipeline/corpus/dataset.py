"""The corpus file, ``data/datasets/{flavor}.json``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from keyword import iskeyword
from typing import Any, Self

from readie_pipeline.errors import CorpusError

DATASET_VERSION = 1
# Fields of `Resources` that are no packages, and how their names begin in a catalogue.
PREFIXES = {"datasets": "dataset:", "models": "model:", "tokenizers": "tokenizer:"}


def label(kind: str, name: str) -> str:
    """The name of a catalogue item for a name in the field ``kind`` of `Resources`."""
    return PREFIXES.get(kind, "") + name


def can_be_imported(name: str) -> bool:
    """Whether ``import name`` could be written."""
    return all(part.isidentifier() and not iskeyword(part) for part in name.split("."))


@dataclass(frozen=True, slots=True)
class Resources:
    """What one workload uses.

    ``packages`` are dotted module names for certain; ``candidates`` the ``"x.y"`` of ``from x
    import y``, which only an installed ``x`` can tell to be modules or not.
    """

    packages: Sequence[str] = ()
    candidates: Sequence[str] = ()
    datasets: Sequence[str] = ()
    models: Sequence[str] = ()
    tokenizers: Sequence[str] = ()

    def names(self) -> Sequence[str]:
        """All as names of catalogue items: resources that are no packages carry a prefix."""
        return (
            *self.packages,
            *self.candidates,
            *(label(kind, name) for kind in PREFIXES for name in getattr(self, kind)),
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """One example: its code strings (none where only the imports are known) and where it is from.

    ``count`` is how many calls it stands for. ``unchecked`` names the resources whose owner could
    not be asked whether they exist.
    """

    id: str
    source: str
    resources: Resources
    domain: str = ""
    code: Sequence[str] = ()
    count: int = 1
    unchecked: Sequence[str] = ()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        resources = {name: tuple(value["resources"].get(name, ())) for name in _RESOURCE_KINDS}
        return cls(
            id=str(value["id"]),
            source=str(value["source"]),
            resources=Resources(**resources),
            domain=str(value.get("domain", "")),
            code=tuple(value.get("code", ())),
            count=int(value.get("count", 1)),
            unchecked=tuple(value.get("unchecked", ())),
        )

    def to_json(self) -> dict[str, Any]:
        """As `from_json` takes it, without what is empty or one."""
        value = asdict(self)
        value["resources"] = {name: names for name, names in value["resources"].items() if names}
        if not self.unchecked:
            del value["unchecked"]
        if self.count == 1:
            del value["count"]
        return value


@dataclass(frozen=True, slots=True)
class Dataset:
    """All workloads of a flavor, in the order they were found."""

    flavor: str
    workloads: Sequence[Workload] = field(default_factory=tuple)

    def requests(self) -> Sequence[Sequence[str]]:
        """What each workload needs, as the planner takes it."""
        return [workload.resources.names() for workload in self.workloads]

    def counts(self) -> Sequence[int]:
        """How many calls each of `requests` stands for."""
        return [workload.count for workload in self.workloads]


_RESOURCE_KINDS = tuple(Resources.__dataclass_fields__)


def load_dataset(data: bytes) -> Dataset:
    """Read the bytes of a corpus file. Raises `CorpusError`."""
    try:
        value = json.loads(data)
        if value["version"] != DATASET_VERSION:
            raise CorpusError(f"the corpus has version {value['version']!r}, not {DATASET_VERSION}")
        return Dataset(str(value["flavor"]), tuple(map(Workload.from_json, value["items"])))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(f"not a corpus: {error!r}") from error


def dump_dataset(dataset: Dataset) -> bytes:
    """The bytes of the file, one workload a line."""
    items = ",\n".join(_dump(workload.to_json()) for workload in dataset.workloads)
    head = f'"version": {DATASET_VERSION},\n"flavor": {_dump(dataset.flavor)}'
    return f'{{\n{head},\n"items": [\n{items}\n]\n}}\n'.encode()


def _dump(value: Any) -> str:
    # Code may hold lone surrogates, which only escaped JSON can carry.
    return json.dumps(value, ensure_ascii=True)
