"""The generations that ``readie up`` made itself, and the link to the one that is served.

current                        leads to what gateway and workers serve: one of these, or a user's own
{flavor}-{runtime}/{id}/       a generation of what the pipeline chose
{flavor}-{runtime}-asked/      the same of import sets that somebody has asked for
              …/made.json      of the newest: import sets ([]: the pipeline chose), what was installed,
                               how many recorded calls it was planned from
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Self

from readie_wire.catalogue import (
    Catalogue,
    CatalogueError,
    canonical_distribution,
    load_catalogue,
)
from readie_wire.manifest import Manifest, ManifestError, load_manifest

CURRENT = "current"
MADE = "made.json"
# On disk. A package of that size that has come since is worth measuring; most others are not.
NOTABLE_BYTES = 8 << 20

ImportSets = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Origin:
    """What a generation was made from: import sets (none: chosen), and versions of what was there.

    ``calls`` were recorded, where those were planned from.
    """

    imports: ImportSets
    distributions: Mapping[str, str]
    calls: int = 0

    @classmethod
    def here(cls, imports: ImportSets, calls: int = 0) -> Self:
        return cls(imports, {name: found.version for name, found in _installed().items()}, calls)


class WarmFolder:
    """``root`` exists, and no other ``readie up`` writes to it. ``asked``: not the pipeline's choice."""

    def __init__(self, root: Path, *, asked: bool) -> None:
        self.root = root
        self._suffix = "-asked" if asked else ""
        self.link = root / CURRENT

    def serve(self, generation: Path) -> None:
        """Let the link lead there, without a moment in between."""
        draft = self.root / f".{CURRENT}.new"
        draft.unlink(missing_ok=True)
        draft.symlink_to(generation)
        draft.replace(self.link)

    def serve_own(self, runtime: str) -> None:
        """Lead to one that was made before: the one served last, else any, for ``runtime`` or auto."""
        pattern = f"*-{'*' if runtime == 'auto' else runtime}{self._suffix}"
        places = sorted(self.root.glob(pattern), key=lambda place: place != self._served_from())
        newest = next(filter(None, map(self.newest, places)), None)
        if newest is None:
            self.link.unlink(missing_ok=True)
        else:
            self.serve(newest)

    def place(self, flavor: str, runtime: str) -> Path:
        place = self.root / f"{flavor}-{runtime}{self._suffix}"
        place.mkdir(mode=0o700, exist_ok=True)
        return place

    def newest(self, place: Path) -> Path | None:
        """The latest generation in it that is whole: ids sort by time."""
        found = sorted(file.parent for file in place.glob("*/manifest.json"))
        return found[-1] if found else None

    def drop_older(self, place: Path) -> None:
        """Remove what neither is the newest nor is served."""
        newest = self.newest(place)
        for file in place.glob("*/manifest.json"):
            if file.parent != newest and not self.serves(file.parent):
                shutil.rmtree(file.parent, ignore_errors=True)

    def serves(self, generation: Path) -> bool:
        return self.link.resolve() == generation.resolve()

    def made_from(self, place: Path) -> "Origin | None":
        try:
            value = json.loads((place / MADE).read_text())
            imports = [tuple(one) for one in value["imports"]]
            return Origin(imports, dict(value["distributions"]), int(value.get("calls", 0)))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def note(self, place: Path, origin: "Origin") -> None:
        """Remember what the newest was made from."""
        (place / MADE).write_text(json.dumps(asdict(origin)) + "\n")

    def _served_from(self) -> Path | None:
        return self.root / self.link.readlink().parent.name if self.link.is_symlink() else None


def manifests(generations: Path) -> Iterator[Manifest]:
    """Of a generation, or of each flavor's. What cannot be read is the worker's to tell."""
    for file in (generations / "manifest.json", *generations.glob("*/manifest.json")):
        try:
            yield load_manifest(file.read_bytes())
        except (OSError, ManifestError):
            continue


def changes_since(generation: Path, then: Mapping[str, str]) -> Sequence[str]:
    """What is no longer as it was when the generation was made, in a few words each.

    ``then`` are the versions of that time. Only what its checkpoints hold counts, and what is new
    and large.
    """
    try:
        catalogue = load_catalogue((generation / "catalogue.json").read_bytes())
    except (OSError, CatalogueError) as error:
        return [f"its catalogue cannot be read ({error})"]
    now = _installed()
    changes = []
    for name in _held(catalogue):
        if name not in now:
            changes.append(f"{name} is gone")
        elif now[name].version != then.get(name):
            changes.append(f"{name} {then.get(name, 'of before')} is {now[name].version} now")
    new = sorted(now.keys() - then.keys())
    return changes + [f"{name} is new" for name in new if _size(now[name]) >= NOTABLE_BYTES]


def _installed() -> Mapping[str, Distribution]:
    """By canonical name; of two copies the first on the path, which is the one that is imported."""
    found: dict[str, Distribution] = {}
    for distribution in distributions():
        found.setdefault(canonical_distribution(distribution.metadata["Name"] or ""), distribution)
    return found


def _size(distribution: Distribution) -> int:
    """Bytes on disk, as its own record has them."""
    return sum(file.size or 0 for file in distribution.files or ())


def _held(catalogue: Catalogue) -> Sequence[str]:
    """The distributions that some checkpoint has imported."""
    items = {name for checkpoint in catalogue.checkpoints for name in checkpoint.items}
    names = {catalogue.items[name].distribution for name in items if name in catalogue.items}
    return sorted(names - {""})
