"""Catalogue files: found in folders, read again when they change, skipped when they are bad."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from readie_gateway.loading import LoadedCatalogue, load_file
from readie_gateway.published import PublishedCatalogues
from readie_wire.catalogue import FLAVORS, CatalogueError
from readie_wire.manifest import ManifestError, load_manifest

log = logging.getLogger(__name__)

POLL_S = 1.0
CATALOGUE_FILE = "catalogue.json"
MANIFEST_FILE = "manifest.json"

# mtime in ns, inode, size, of the file and of the manifest beside it: an edit or an atomic rename of
# either changes it.
_Stamp = tuple[int, ...]


class Catalogues:
    """The catalogues of a generations folder, a catalogue folder and a bucket, kept up to date.

    ``generations`` is a generation or holds one folder for each flavor; ``folder`` holds
    ``*.json``. A file is filed under the flavor written inside it. A file that cannot be read, or
    is of another version, is skipped with one warning until it changes. One that was replaced still
    prices calls for as long as live workers hold its generation: they change over one by one.
    """

    def __init__(
        self,
        *,
        generations: Path | None = None,
        folder: Path | None = None,
        published: PublishedCatalogues | None = None,
    ) -> None:
        self._generations = generations
        self._folder = folder
        self._published = published
        self._stamps: Mapping[Path, _Stamp] = {}
        self._loaded: dict[Path, LoadedCatalogue] = {}
        self._replaced: dict[Path, LoadedCatalogue] = {}  # the one before, of each path
        self._skipped: dict[Path, str] = {}
        self._refreshing = asyncio.Lock()
        self._looked = asyncio.Event()

    @property
    def loaded(self) -> Sequence[LoadedCatalogue]:
        """The usable ones; those of the generations folder first, those of the bucket last."""
        of_files = [self._loaded[path] for path in self._stamps if path in self._loaded]
        of_files += self._replaced.values()
        return (*of_files, *(self._published.loaded if self._published else ()))

    @property
    def skipped(self) -> Mapping[Path, str]:
        """Why a file, or an object of the bucket, is not used."""
        return {**self._skipped, **(self._published.skipped if self._published else {})}

    def held(self, hashes: Collection[str]) -> None:
        """Live workers hold generations with these catalogues."""
        self._replaced = {path: one for path, one in self._replaced.items() if one.sha256 in hashes}
        if self._published is not None:
            self._published.want(set(hashes) - {one.sha256 for one in self._loaded.values()})

    async def run(self) -> None:
        """Look for changes for ever."""
        while True:
            await self.refresh()
            await asyncio.sleep(POLL_S)

    async def first_look(self, patience_s: float) -> None:
        """Wait until all has been read once, or for so long: a large one takes its time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._looked.wait()

    async def refresh(self) -> bool:
        """Read what is new or has changed. ``True`` when any file did."""
        async with self._refreshing:
            changed = await self._refresh()
        self._looked.set()
        return changed

    async def _refresh(self) -> bool:
        if self._published is not None:
            await self._published.refresh()
        stamps = _stamps(self._find())
        if stamps == self._stamps:
            return False
        changed = [path for path, stamp in stamps.items() if self._stamps.get(path) != stamp]
        for path in self._stamps.keys() - stamps.keys():
            self._loaded.pop(path, None)
            self._skipped.pop(path, None)
            log.info("catalogue %s is gone", path)
        for path in changed:
            await self._load(path)
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

    async def _load(self, path: Path) -> None:
        try:
            loaded = await _read(path)
        except (CatalogueError, ManifestError, OSError) as error:
            self._skipped[path] = str(error)
            self._loaded.pop(path, None)
            log.warning("catalogue %s is skipped: %s", path, error)
            return
        self._skipped.pop(path, None)
        before = self._loaded.get(path)
        if before is not None and before.sha256 != loaded.sha256:
            self._replaced[path] = before
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


async def _read(path: Path) -> LoadedCatalogue:
    loaded = await load_file(path)
    beside = path.with_name(MANIFEST_FILE)
    if path.name != CATALOGUE_FILE or not await asyncio.to_thread(beside.is_file):
        return loaded
    manifest = load_manifest(await asyncio.to_thread(beside.read_bytes))
    if manifest.catalogue_sha256 != loaded.sha256:
        raise CatalogueError(f"{beside} describes another catalogue (its sha256 differs)")
    return replace(loaded, generation=manifest.generation, python=manifest.python)
