"""Images on their way from the worker that captured them to the run that asked: by way of a bucket.

They go as the objects that a publication of them would be, so publishing sends them no second time.
"""

import hashlib
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from readie_infra.bucket import compress, fetch
from readie_infra.objects import ObjectStore
from readie_wire.manifest import MappedFile
from readie_wire.publication import PublishedFile, object_key


@contextmanager
def meeting_point(store: ObjectStore) -> Iterator[str]:
    """Puts an object into the bucket by whose key, a chance one, workers see that theirs is the same.

    Should it stay there, it is collected as any other object that nothing refers to.
    """
    key = object_key(hashlib.sha256(secrets.token_bytes(32)).hexdigest())
    store.put(key, b"")
    try:
        yield key
    finally:
        store.delete(key)


def meets(store: ObjectStore, key: str) -> bool:
    return store.head(key) is not None


def send(store: ObjectStore, folder: Path, files: Sequence[MappedFile]) -> None:
    """Put what the bucket lacks. Raises `BucketError` and `ObjectError`."""
    with tempfile.TemporaryDirectory(prefix=".packed-", dir=folder) as place:
        for file in map(_published, files):
            if store.head(file.key) is None:
                packed = Path(place, "packed")
                compress(folder / file.name, packed, file)
                store.put(file.key, packed)


def receive(store: ObjectStore, folder: Path, files: Sequence[MappedFile]) -> None:
    """Bring them, every hash right. Raises `BucketError`, `ObjectError` and `OSError`."""
    for file in map(_published, files):
        fetch(store, file, folder / Path(file.name).name)


def _published(file: MappedFile) -> PublishedFile:
    return PublishedFile(file.path, file.size, file.sha256)
