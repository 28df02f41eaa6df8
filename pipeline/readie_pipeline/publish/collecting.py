"""Removes from a bucket what nothing refers to any more: first marked, later deleted."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from readie_infra.bucket import Trust
from readie_infra.bucket.surveying import generations, pointers
from readie_infra.objects import (
    Document,
    ObjectConflictError,
    ObjectMissingError,
    ObjectStore,
    ObjectStoreUnavailableError,
)
from readie_pipeline.errors import PublishError
from readie_wire.publication import (
    GENERATIONS,
    INTENTS,
    MARKS,
    OBJECTS,
    ROOTFS,
    Intent,
    Marks,
    PublicationError,
    Target,
    manifest_key,
)

PROBES = "probes/"


@dataclass(frozen=True, slots=True)
class Collected:
    """``marked`` are newly seen as unused, ``deleted`` are gone; ``freed`` bytes were theirs.

    ``unfinished`` are uploads of killed publishers that were removed; ``problem`` says why those
    could not be looked for.
    """

    kept: int
    marked: int
    deleted: int
    freed: int
    unfinished: int = 0
    problem: str = ""


def collect(
    store: ObjectStore, *, min_age_s: float, keep: int, now: float | None = None
) -> Collected:
    """One round. What has been unused for ``min_age_s`` in two rounds is deleted.

    Kept are: what pointers name (the previous one included), the ``keep`` newest generations of
    each flavor and root filesystem, and what publications under way are about to refer to.
    Raises `PublishError` when another collector is at work, `BucketError` and `ObjectError`.
    """
    now = time.time() if now is None else now
    _check_readable(store)
    seen, etag = _marks(store)
    stored = _stored(store)
    used = _used(store, keep, now - min_age_s)
    unused = {key: seen.unused.get(key, now) for key in stored.keys() - used}
    due = sorted(
        (
            key
            for key, since in unused.items()
            if max(since, stored[key].modified) <= now - min_age_s
        ),
        # A manifest goes before its objects: a generation is never listed without them.
        key=lambda key: (not key.startswith(GENERATIONS), key),
    )
    etag = _write(store, Marks(unused, due), etag)
    # Publishers that wrote their intent before they could see these marks are seen now.
    still_used = _used(store, keep, now - min_age_s) if due else set()
    deleted = [key for key in due if key not in still_used]
    for key in deleted:
        store.delete(key)
    remaining = {key: since for key, since in unused.items() if key not in {*deleted, *still_used}}
    _write(store, Marks(remaining), etag)
    _sweep_leftovers(store, now - min_age_s)
    unfinished, problem = _drop_unfinished(store, now - min_age_s)
    return Collected(
        kept=len(stored) - len(deleted),
        marked=len(unused.keys() - seen.unused.keys()),
        deleted=len(deleted),
        freed=sum(stored[key].size for key in deleted),
        unfinished=unfinished,
        problem=problem,
    )


def _check_readable(store: ObjectStore) -> None:
    """Objects may be in use by lists that only a newer release reads: then nothing is garbage."""
    for entry in store.list(ROOTFS):
        raise PublishError(
            f"{entry.key} was published by a newer Readie, whose gc knows what it needs: nothing is "
            "collected"
        )


@dataclass(frozen=True, slots=True)
class _Stored:
    size: int
    modified: float


def _stored(store: ObjectStore) -> Mapping[str, _Stored]:
    return {
        entry.key: _Stored(entry.size, entry.modified)
        for space in (OBJECTS, GENERATIONS)
        for entry in store.list(space)
    }


def _used(store: ObjectStore, keep: int, before: float) -> set[str]:
    """Every key that something refers to, or may refer to soon."""
    used: set[str] = set()
    for intent in _intents(store, before):
        used.update(intent.keys)
    named = pointers(store)
    if named.refused:
        raise PublishError(f"{named.refused[0]}: nothing is collected")
    current = {(one.flavor, target) for one in named.found for target in one.targets}
    readable: set[tuple[str, Target]] = set()
    newest: dict[tuple[str, str], int] = {}
    # Whoever signed it: a list decides here what is kept, never what is run.
    for held in generations(store, Trust(unsigned=True)):
        if held.listed is None:
            continue
        readable.add((held.flavor, held.target))
        kind = (held.flavor, held.listed.rootfs)
        newest[kind] = newest.get(kind, 0) + 1
        if (held.flavor, held.target) in current or newest[kind] <= keep:
            used |= {held.key, *held.listed.keys}
    lost = {manifest_key(flavor, target.generation) for flavor, target in current - readable}
    if lost:
        raise PublishError(
            f"{min(lost)}, which a pointer names, is gone or cannot be read: nothing is collected. "
            "Publish that generation again"
        )
    return used


def _intents(store: ObjectStore, before: float) -> list[Intent]:
    """Those of publications that may still be under way."""
    found = []
    for entry in list(store.list(INTENTS)):
        if entry.modified < before:
            continue
        try:
            found.append(Intent.load(store.get(entry.key).data))
        except ObjectMissingError:  # it ended meanwhile: its pointer is read after this
            continue
        except PublicationError as error:
            raise PublishError(f"{entry.key}: {error}; nothing is collected") from error
    return found


def _sweep_leftovers(store: ObjectStore, before: float) -> None:
    """What killed publishers left behind."""
    for space in (INTENTS, PROBES):
        for entry in list(store.list(space)):
            if entry.modified < before:
                store.delete(entry.key)


def _drop_unfinished(store: ObjectStore, before: float) -> tuple[int, str]:
    """How many, and what hinders: not every store lists uploads, or lets everybody do so."""
    try:
        return store.drop_unfinished(OBJECTS, before), ""
    except ObjectStoreUnavailableError as error:
        return 0, str(error)


def _marks(store: ObjectStore) -> tuple[Marks, str | None]:
    try:
        found: Document = store.get(MARKS)
    except ObjectMissingError:
        return Marks(), None
    try:
        return Marks.load(found.data), found.etag
    except PublicationError as error:
        raise PublishError(f"{MARKS} in {store.url}: {error}") from error


def _write(store: ObjectStore, marks: Marks, etag: str | None) -> str:
    """Replace the marks; their new tag. Raises `PublishError` when somebody else did."""
    data = marks.dump()
    try:
        if etag is None:
            store.put_if_absent(MARKS, data)
        else:
            store.put_if_match(MARKS, data, etag)
    except ObjectConflictError as error:
        if store.get(MARKS).data != data:  # else it was our own put, repeated by the client
            raise PublishError(f"another gc is at work in {store.url}; let it end") from error
    found = store.get(MARKS)
    if found.data != data:
        raise PublishError(f"another gc is at work in {store.url}; let it end")
    return found.etag
