"""Blobs as objects of a bucket."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from readie_infra.blobs.api import SWEEP_AT_ONCE, StillKnown
from readie_infra.errors import BlobKeyError, BlobMissingError, BlobUnavailableError
from readie_infra.objects import ObjectError, ObjectKeyError, ObjectMissingError, ObjectStore

_SPACE = "blobs/"  # what a sweep looks at: the bucket may hold more than blobs


class BucketBlobs:
    """See `readie_infra.blobs.BlobStore`. Calls of the store run in threads."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, key: str, data: bytes | Path) -> None:
        with _translated(key):
            await asyncio.to_thread(self._store.put, key, data)

    async def get(self, key: str) -> bytes:
        with _translated(key):
            return await asyncio.to_thread(self._read, key)

    async def delete(self, key: str) -> None:
        with _translated(key):
            await asyncio.to_thread(self._store.delete, key)

    async def exists(self, key: str) -> bool:
        with _translated(key):
            return await asyncio.to_thread(self._store.head, key) is not None

    async def sweep(self, older_than_s: float, known: StillKnown) -> list[str]:
        before = time.time() - older_than_s
        with _translated(_SPACE):
            owned = await asyncio.to_thread(self._owned)
            old = [owner for owner, keys in owned.items() if min(keys.values()) < before]
            kept = set(await known(old))
            gone = [owner for owner in old if owner not in kept]
            for owner in gone:
                for key in owned[owner]:
                    await asyncio.to_thread(self._store.delete, key)
            return gone

    def _read(self, key: str) -> bytes:
        found = self._store.head(key)
        if found is None:
            raise ObjectMissingError(key, "there is none")
        with self._store.stream(key) as chunks:
            data = b"".join(chunks)
        if len(data) != found.size:
            raise BlobUnavailableError(key, f"{len(data)} of {found.size} bytes arrived")
        return data

    def _owned(self) -> dict[str, dict[str, float]]:
        """The keys of each owner, with their age; the owner is the second part of a key."""
        owned: dict[str, dict[str, float]] = {}
        for found in self._store.list(_SPACE):
            owner = found.key.split("/")[1]
            if owner not in owned and len(owned) >= SWEEP_AT_ONCE:
                break
            owned.setdefault(owner, {})[found.key] = found.modified
        return owned


@contextmanager
def _translated(key: str) -> Iterator[None]:
    try:
        yield
    except ObjectKeyError as error:
        raise BlobKeyError(key, str(error)) from error
    except ObjectMissingError as error:
        raise BlobMissingError(key, "there is none") from error
    except ObjectError as error:
        raise BlobUnavailableError(key, str(error)) from error
