"""Where datasets, models and tokenizers lie on this machine. Nothing is fetched."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from readie_wire.catalogue import ResourceType

_KAGGLE = re.compile(r"kaggle:([\w-]+/[\w-]+)")
# A tokenizer lies in the repository of its model.
_FOLDERS = {
    ResourceType.DATASET: "datasets",
    ResourceType.MODEL: "models",
    ResourceType.TOKENIZER: "models",
}


@dataclass(frozen=True, slots=True)
class Places:
    """``given`` maps item names to paths, and goes first; ``None`` is for what lies in a cache.

    ``hub`` is the cache of the Hugging Face hub, ``kaggle`` that of Kaggle's client, ``sklearn``
    what scikit-learn has fetched.
    """

    hub: Path
    kaggle: Path
    sklearn: Path
    given: Mapping[str, Path | None] = field(default_factory=dict)

    def find(self, item: str) -> Path | None:
        """The file or folder of an item such as ``model:org/name``; ``None`` when it is not here."""
        if (given := self.given.get(item)) is not None:
            return given
        kind, name = parted(item)
        if (handle := _KAGGLE.fullmatch(name)) is not None:
            return _newest(self.kaggle / "datasets" / handle[1] / "versions")
        repository = self.hub / f"{_FOLDERS[kind]}--{name.replace('/', '--')}"
        return _current_snapshot(repository)


def parted(item: str) -> tuple[ResourceType, str]:
    """``model:gpt2`` → the kind and ``gpt2``. Raises `ValueError` for what is no such item."""
    kind, _, name = item.partition(":")
    if not name or kind not in set(_FOLDERS):
        raise ValueError(item)
    return ResourceType(kind), name


def _current_snapshot(repository: Path) -> Path | None:
    """What ``main`` points at, else the snapshot that was fetched last."""
    snapshots = repository / "snapshots"
    try:
        current = snapshots / (repository / "refs" / "main").read_text().strip()
    except OSError:
        return _newest(snapshots)
    return current if current.is_dir() else _newest(snapshots)


def _newest(folder: Path) -> Path | None:
    if not folder.is_dir():
        return None
    versions = [one for one in folder.iterdir() if one.is_dir()]
    return max(versions, key=lambda one: (one.stat().st_mtime_ns, one.name), default=None)
