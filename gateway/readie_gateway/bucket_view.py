"""What is published, for people to look at. What is served, workers decide for themselves."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from readie_gateway.published import fetch_catalogue
from readie_infra.aside import aside
from readie_infra.bucket import Bucket, BucketError, Trust, expand
from readie_infra.bucket.surveying import pointers
from readie_infra.objects import ObjectError, ObjectStore
from readie_wire.catalogue import FLAVORS, CatalogueError
from readie_wire.manifest import Manifest, ManifestError, load_manifest
from readie_wire.publication import (
    CATALOGUE_NAME,
    MANIFEST_NAME,
    PackingList,
    Pointer,
    manifest_key,
)

log = logging.getLogger(__name__)

POLL_S = 10.0  # between two looks at the pointers, unless there is news
REMEMBERED = 64  # generations that were looked at

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PublishedGeneration:
    """One that is in the bucket."""

    listed: PackingList
    manifest: Manifest


class BucketView:
    """The pointers and what they name, as last seen; other generations when they are asked for.

    Signatures are not looked at: nothing that is read here is ever run. ``error`` says why the
    bucket cannot be read; what is told is then from before.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._bucket = Bucket(store, Trust(unsigned=True))
        self._known: dict[str, PublishedGeneration] = {}  # the one looked at last comes last
        self._distributions: dict[str, Mapping[str, str]] = {}
        self.pointers: Sequence[Pointer] = ()
        self.error = ""
        self._looking = asyncio.Lock()  # one look at a time: no older one is told after a newer

    @property
    def url(self) -> str:
        return self._bucket.store.url

    async def run(self, pause: Callable[[float], Awaitable[object]]) -> None:
        """Look for ever. ``pause`` waits for the next look, and less when there is news."""
        while True:
            await self.refresh()
            await pause(POLL_S)

    async def refresh(self) -> None:
        """Look once, after any look that has begun."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        try:
            seen = await aside(pointers, self._bucket.store)
        except (BucketError, ObjectError) as error:
            self._note(str(error))
            return
        found, problem = seen.found, "; ".join(seen.refused)
        for target in (target for pointer in found for target in pointer.targets):
            try:
                if await self.generation(target.generation) is None:
                    problem = f"generation {target.generation}, which a pointer names, is not there"
            except (BucketError, ObjectError) as error:
                problem = str(error)  # the others are told all the same
        self._note(problem)
        before = {one.key: one.target.generation for one in self.pointers}
        self.pointers = tuple(found)
        for pointer in found:
            current = pointer.target.generation
            if before.get(pointer.key) != current:
                log.info(
                    "generation %s is current for %s/%s, after %s",
                    *(current, pointer.flavor, pointer.rootfs, before.get(pointer.key)),
                )

    def _note(self, problem: str) -> None:
        if problem and problem != self.error:
            log.warning("what is published cannot be read: %s", problem)
        self.error = problem

    async def generation(self, generation: str) -> PublishedGeneration | None:
        """None when it is not in the bucket. Raises `BucketError`, `ObjectError`."""
        found = self._known.pop(generation, None)
        if found is None:
            found = await aside(self._read, generation)
        if found is not None:
            _remember(self._known, generation, found)
        return found

    async def distributions(self, published: PublishedGeneration) -> Mapping[str, str]:
        """Those of its root filesystem, with versions. Raises `BucketError`, `ObjectError`.

        They are in the catalogue, which may be large: it is read when they are asked for first.
        """
        generation = published.listed.generation
        found = self._distributions.pop(generation, None)
        if found is None:
            sha256 = published.listed.file(CATALOGUE_NAME).sha256
            try:
                loaded = await fetch_catalogue(self._bucket.store, sha256)
            except (CatalogueError, OSError) as error:
                raise _unreadable(generation, error) from error
            found = loaded.priced.catalogue.distributions
        _remember(self._distributions, generation, found)
        return found

    def known(self, generation: str) -> PublishedGeneration | None:
        """The same as `generation` of what pointers name, without looking."""
        return self._known.get(generation)

    def catalogues_after(self, served: Collection[str]) -> set[str]:
        """Hashes of the catalogues of what replaces a generation that workers serve."""
        return {
            found.manifest.catalogue_sha256
            for pointer in self.pointers
            if pointer.previous is not None and pointer.previous.generation in served
            if (found := self._known.get(pointer.target.generation)) is not None
        }

    def _read(self, generation: str) -> PublishedGeneration | None:
        listed = self._packing_list(generation)
        if listed is None:
            return None
        pieces: list[bytes] = []
        expand(self._bucket.store, listed.file(MANIFEST_NAME), pieces.append)
        try:
            return PublishedGeneration(listed, load_manifest(b"".join(pieces)))
        except ManifestError as error:
            raise _unreadable(generation, error) from error

    def _packing_list(self, generation: str) -> PackingList | None:
        store = self._bucket.store
        for flavor in FLAVORS:
            key = manifest_key(flavor, generation)
            if store.head(key) is not None:
                return self._bucket.open(store.get(key).data, flavor, generation)
        return None


def _remember(known: dict[str, _T], generation: str, found: _T) -> None:
    known[generation] = found
    while len(known) > REMEMBERED:
        del known[next(iter(known))]


def _unreadable(generation: str, error: Exception) -> BucketError:
    return BucketError(f"generation {generation} cannot be read: {error}")
