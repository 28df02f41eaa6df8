"""Catalogue files: found in folders, read again when they change, skipped when they are bad."""

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from readie_wire.catalogue import FLAVORS, CatalogueError, load_catalogue
from readie_wire.manifest import ManifestError, load_manifest
from readie_wire.pricing import PricedCatalogue

log = logging.getLogger(__name__)

POLL_S = 1.0
CATALOGUE_FILE = "catalogue.json"
MANIFEST_FILE = "manifest.json"

# mtime in ns, inode, size, of the file and of the manifest beside it: an edit or an atomic rename of
# either changes it.
_Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoadedCatalogue:
    """A catalogue that can price calls.

    ``generation`` and ``python`` come from the manifest beside the file and are empty where there
    is none; ``sha256`` is of the file's bytes, and what workers name it by.
    """

    path: Path
    sha256: str
    priced: PricedCatalogue
    generation: str = ""
    python: str = ""

    @property
    def flavor(self) -> str:
        return self.priced.catalogue.flavor


class Catalogues:
    """The catalogues of a generations folder and of a catalogue folder, kept up to date.

    ``generations`` is a generation or holds one folder for each flavor; ``folder`` holds
    ``*.json``. A file is filed under the flavor written inside it. A file that cannot be read, or
    is of another version, is skipped with one warning until it changes.
    """

    def __init__(self, *, generations: Path | None = None, folder: Path | None = None) -> None:
        self._generations = generations
        self._folder = folder
        self._stamps: Mapping[Path, _Stamp] = {}
        self._loaded: dict[Path, LoadedCatalogue] = {}
        self.skipped: dict[Path, str] = {}  # path → why

    @property
    def loaded(self) -> Sequence[LoadedCatalogue]:
        """The usable ones; those of the generations folder first."""
        return tuple(self._loaded[path] for path in self._stamps if path in self._loaded)

    async def run(self) -> None:
        """Look for changes for ever."""
        while True:
            await asyncio.sleep(POLL_S)
            await self.refresh()

    async def refresh(self) -> bool:
        """Read what is new or has changed. ``True`` when anything did."""
        stamps = _stamps(self._find())
        if stamps == self._stamps:
            return False
        changed = [path for path, stamp in stamps.items() if self._stamps.get(path) != stamp]
        for path in self._stamps.keys() - stamps.keys():
            self._loaded.pop(path, None)
            self.skipped.pop(path, None)
            log.info("catalogue %s is gone", path)
        for path in changed:
            # Hundreds of megabytes take seconds to read, so not on the event loop's own thread.
            await asyncio.to_thread(self._load, path)
        self._stamps = stamps
        return True

    def _find(self) -> list[Path]:
        found: list[Path] = []
        if self._generations is not None:
            folders = (self._generations, *(self._generations / name for name in FLAVORS))
            found.extend(folder / CATALOGUE_FILE for folder in folders)
        if self._folder is not None:
            found.extend(sorted(self._folder.glob("*.json")))
        return found

    def _load(self, path: Path) -> None:
        try:
            loaded = _read(path)
        except (CatalogueError, ManifestError, OSError) as error:
            self.skipped[path] = str(error)
            self._loaded.pop(path, None)
            log.warning("catalogue %s is skipped: %s", path, error)
            return
        self.skipped.pop(path, None)
        self._loaded[path] = loaded
        catalogue = loaded.priced.catalogue
        log.info(
            "catalogue %s loaded: flavor=%s items=%d checkpoints=%d sha256=%s",
            *(path, catalogue.flavor, len(catalogue.items), len(catalogue.checkpoints)),
            loaded.sha256[:12],
        )


def _stamps(paths: Sequence[Path]) -> dict[Path, _Stamp]:
    stamps = {}
    for path in paths:
        if found := _stamp(path):
            beside = _stamp(path.with_name(MANIFEST_FILE)) if path.name == CATALOGUE_FILE else ()
            stamps[path] = found + beside
    return stamps


def _stamp(path: Path) -> _Stamp:
    """Empty for a file that is not there."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ino, found.st_size


def _read(path: Path) -> LoadedCatalogue:
    data = path.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    priced = PricedCatalogue(load_catalogue(data))
    beside = path.with_name(MANIFEST_FILE)
    if path.name != CATALOGUE_FILE or not beside.is_file():
        return LoadedCatalogue(path, sha256, priced)
    manifest = load_manifest(beside.read_bytes())
    if manifest.catalogue_sha256 != sha256:
        raise CatalogueError(f"{beside} describes another catalogue (its sha256 differs)")
    return LoadedCatalogue(path, sha256, priced, manifest.generation, manifest.python)
