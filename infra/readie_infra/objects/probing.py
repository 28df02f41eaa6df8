"""Tries out whether a store honours conditions, before anything depends on it."""

import secrets
from collections.abc import Callable

from readie_infra.objects.errors import ObjectConflictError, UnfitStoreError
from readie_infra.objects.store import ObjectStore

PROBES = "probes"


def probe(store: ObjectStore) -> None:
    """Raise `UnfitStoreError` when a put whose condition does not hold is accepted.

    Publishers rely on exactly one winner; some stores that speak S3 ignore the headers for that.
    Leaves nothing behind.
    """
    key = f"{PROBES}/{secrets.token_hex(8)}"
    store.put_if_absent(key, b"first")
    try:
        first = store.get(key).etag
        if _accepts(lambda: store.put_if_absent(key, b"second")):
            raise UnfitStoreError(key, f"{store.url} ignores If-None-Match; use another store")
        store.put_if_match(key, b"second", first)
        if _accepts(lambda: store.put_if_match(key, b"third", first)):
            raise UnfitStoreError(key, f"{store.url} ignores If-Match; use another store")
        if store.get(key).data != b"second":
            raise UnfitStoreError(key, f"{store.url} does not read what was written last")
    finally:
        store.delete(key)


def _accepts(put: Callable[[], None]) -> bool:
    try:
        put()
    except ObjectConflictError:
        return False
    return True
