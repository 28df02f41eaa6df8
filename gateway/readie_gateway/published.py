"""Catalogues of published generations, fetched from the bucket when a live worker holds one."""

import asyncio
import logging
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from readie_gateway.loading import LoadedCatalogue, load_file
from readie_infra.bucket import BucketError, save
from readie_infra.objects import ObjectError, ObjectStore
from readie_wire.catalogue import CatalogueError
from readie_wire.publication import object_key

log = logging.getLogger(__name__)

CATALOGUE_LIMIT_BYTES = 1 << 30  # some have 400 MB
RETRY_S = 10.0  # after a catalogue could not be fetched


class PublishedCatalogues:
    """Catalogues by the hash under which workers advertise them.

    A worker has proven what it holds; the same hash proves the object. So swaps and rollbacks are
    followed without looking at any pointer, and a catalogue is dropped with its last worker.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._wanted: frozenset[str] = frozenset()
        self._loaded: dict[str, LoadedCatalogue] = {}
        self._retry_at: dict[str, float] = {}
        self.skipped: dict[Path, str] = {}

    @property
    def loaded(self) -> Sequence[LoadedCatalogue]:
        return tuple(self._loaded.values())

    def want(self, hashes: Collection[str]) -> None:
        """These are held by live workers and not known otherwise."""
        self._wanted = frozenset(hashes)

    async def refresh(self) -> None:
        """Fetch what is wanted and not here, drop what is no longer wanted."""
        wanted, now = self._wanted, asyncio.get_running_loop().time()
        for sha256 in self._loaded.keys() - wanted:
            del self._loaded[sha256]
        for sha256 in wanted - self._loaded.keys():
            if self._retry_at.get(sha256, now) <= now:
                await self._load(sha256, now)

    async def _load(self, sha256: str, now: float) -> None:
        path = Path(object_key(sha256))
        try:
            loaded = await fetch_catalogue(self._store, sha256)
        except (BucketError, ObjectError, CatalogueError, OSError) as error:
            if self.skipped.get(path) != str(error):
                log.warning("catalogue %s of the bucket is skipped: %s", sha256[:12], error)
            self.skipped[path] = str(error)
            self._retry_at[sha256] = now + RETRY_S
            return
        self.skipped.pop(path, None)
        self._retry_at.pop(sha256, None)
        self._loaded[sha256] = loaded
        log.info("catalogue %s fetched: flavor=%s", sha256[:12], loaded.flavor)


async def fetch_catalogue(store: ObjectStore, sha256: str) -> LoadedCatalogue:
    """Raises `BucketError`, `ObjectError`, `CatalogueError` and `OSError`."""
    with tempfile.TemporaryDirectory(prefix="readie-catalogue-") as folder:
        file = Path(folder) / "catalogue.json"
        await asyncio.to_thread(save, store, sha256, CATALOGUE_LIMIT_BYTES, file)
        return replace(await load_file(file), path=Path(object_key(sha256)))
