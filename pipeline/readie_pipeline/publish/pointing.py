"""The one step that makes a generation current: a conditional put of a pointer."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from readie_infra.bucket import Bucket, FoundPointer, NotPublishedError, Trust
from readie_infra.objects import (
    ObjectConflictError,
    ObjectError,
    ObjectMissingError,
    ObjectStore,
    ObjectStoreUnavailableError,
)
from readie_pipeline.errors import LostRaceError, PublishError
from readie_wire.publication import (
    MARKS,
    Intent,
    Marks,
    Pointer,
    PublicationError,
    Target,
    intent_key,
    new_publication_id,
)

TRIES = 5  # of a put that fails although the pointer is still the one that was read

# A pointer is not signed: what it points to is.
_NOBODY = Trust(unsigned=True)


def read_pointer(store: ObjectStore, flavor: str, rootfs: str) -> FoundPointer | None:
    """None while nothing is current there. Raises `BucketError` and `ObjectError`."""
    try:
        return Bucket(store, _NOBODY).current(flavor, rootfs)
    except NotPublishedError:
        return None


@contextmanager
def intending(store: ObjectStore, intent: Intent) -> Iterator[None]:
    """Hold the collector off the intent's keys while the block runs.

    The intent is written before the marks are read, and a collector writes what it deletes before
    it reads intents: whichever comes second sees the other. Raises `PublishError` when a collector
    is deleting one of the keys.
    """
    key = intent_key(intent.publication)
    store.put(key, intent.dump())
    try:
        deleting = set(read_marks(store).deleting) & set(intent.keys)
        if deleting:
            raise PublishError(
                f"`readie-pipeline gc` is deleting {min(deleting)} from {store.url}; let it end, "
                "or run it again if it was interrupted, then publish again"
            )
        yield
    finally:
        with suppress(ObjectError):  # it is collected with age
            store.delete(key)


def read_marks(store: ObjectStore) -> Marks:
    try:
        return Marks.load(store.get(MARKS).data)
    except ObjectMissingError:
        return Marks()
    except PublicationError as error:
        raise PublishError(f"{MARKS} in {store.url}: {error}") from error


def point(store: ObjectStore, base: FoundPointer | None, pointer: Pointer) -> None:
    """Replace ``base`` (None: nothing was there) by ``pointer``, or leave everything as it is.

    A put whose answer was lost may have succeeded, and a client that repeats it is told of a
    conflict with itself: the publication in the pointer tells. Raises `LostRaceError`.
    """
    for _ in range(TRIES):
        try:
            if base is None:
                store.put_if_absent(pointer.key, pointer.dump())
            else:
                store.put_if_match(pointer.key, pointer.dump(), base.etag)
        except (ObjectConflictError, ObjectStoreUnavailableError) as error:
            found = read_pointer(store, pointer.flavor, pointer.rootfs)
            if found is not None and found.pointer.publication == pointer.publication:
                return
            if (found and found.etag) != (base and base.etag):
                raise LostRaceError(_lost(pointer, found)) from error
        else:
            return
    raise PublishError(f"{store.url} does not let {pointer.key} be replaced; try again later")


def new_pointer(base: FoundPointer | None, flavor: str, rootfs: str, target: Target) -> Pointer:
    return Pointer(
        flavor=flavor,
        rootfs=rootfs,
        target=target,
        publication=new_publication_id(),
        published=time.strftime("%Y%m%dT%H%M%S", time.gmtime()),
        previous=base.pointer.target if base else None,
    )


def _lost(pointer: Pointer, found: FoundPointer | None) -> str:
    mine = f"generation {pointer.target.generation} is not current"
    if found is None:
        return f"{mine}: somebody removed the pointer of {pointer.flavor}/{pointer.rootfs}"
    theirs = found.pointer
    return (
        f"{mine}: another publisher made {theirs.target.generation} current at "
        f"{theirs.published}; publish again if yours is to replace it"
    )
