"""Blobs of calls whose record has expired are removed, by any gateway, now and then."""

import asyncio
import logging

from readie_infra.blobs import BlobStore
from readie_infra.errors import BlobError
from readie_infra.store import CallStore

log = logging.getLogger(__name__)

EVERY_S = 600.0
# A payload is stored before its call is: longer than the slowest upload, so that none is taken away.
MIN_AGE_S = 3_600.0


async def clean_blobs(store: CallStore, blobs: BlobStore) -> None:
    """Sweep for ever. Raises `StoreUnavailableError`."""
    while True:
        await asyncio.sleep(EVERY_S)
        try:
            removed = await blobs.sweep(MIN_AGE_S, store.known)
        except BlobError as error:
            log.warning("blobs could not be swept: %s", error)
            continue
        if removed:
            log.info("removed the blobs of %d expired calls", len(removed))
