"""The two ends of a call that are kept elsewhere: its payload, and its outcome with its result."""

from collections.abc import Sequence
from dataclasses import replace

import structlog

from readie_infra.blobs import BlobStore, result_key
from readie_infra.errors import BlobError, StoreUnavailableError
from readie_infra.store import CallStore, Event
from readie_wire.http import INLINE_LIMIT_BYTES
from readie_wire.lifecycle import State
from readie_wire.records import CallRecord
from readie_worker import outcomes
from readie_worker.errors import NotStartedError
from readie_worker.outcomes import Ending
from readie_worker.persisting import persist
from readie_worker.rerunning import is_poison, may_run_again, notice

FETCH_PATIENCE_S = 10.0  # for a payload; the lease goes on meanwhile

log = structlog.stdlib.get_logger(__name__)


class Settler:
    """Fetches payloads and settles calls. ``patience`` is how long an outcome waits, in seconds."""

    def __init__(self, store: CallStore, blobs: BlobStore | None, patience: float) -> None:
        self._store = store
        self._blobs = blobs
        self._patience = patience

    async def payload(self, record: CallRecord) -> bytes:
        """The call's bytes. Raises `NotStartedError`, `BlobError`."""
        if not record.payload_blob:
            return record.payload
        blobs = self._blobs
        if blobs is None:
            raise NotStartedError("its payload is in a blob store; set READIE_BLOB_URL")
        return await persist(
            "fetching a payload", lambda: blobs.get(record.payload_blob), FETCH_PATIENCE_S
        )

    async def finish(
        self,
        record: CallRecord,
        ending: Ending,
        result_ttl: float,
        logs: Sequence[Event] = (),
        session_over: str = "",
    ) -> None:
        """Store the end of the call; what cannot be stored within the patience is lost, and logged.

        A run that came to nothing is queued again instead, where the caller allows it; the last one
        parks the call.
        """
        if may_run_again(record, ending.outcome) and await self._queued_again(record, ending, logs):
            return
        if is_poison(record, ending.outcome):
            ending = replace(ending, state=State.DEAD)
        ending, blob = await self._with_stored_body(record, ending)
        result = b"" if blob else ending.body
        try:
            ours = await persist(
                "storing an outcome",
                lambda: self._store.finish(
                    record.call_id,
                    record.owner,
                    record.attempt,
                    ending.state,
                    ending.outcome,
                    result,
                    blob,
                    result_ttl,
                    logs,
                    session_over,
                ),
                self._patience,
            )
        except StoreUnavailableError:
            log.exception("outcome lost", call=record.call_id, state=ending.state)
            return
        if not ours:
            log.info("outcome not wanted", call=record.call_id, state=ending.state)

    async def _queued_again(
        self, record: CallRecord, ending: Ending, logs: Sequence[Event]
    ) -> bool:
        """Whether it was; else this run is its last, or the store cannot be had, and it ends."""
        last = [*logs, notice(record, ending.outcome)]
        try:
            queued = await persist(
                "queueing a call again",
                lambda: self._store.retry(record.call_id, record.owner, record.attempt, last),
                self._patience,
            )
        except StoreUnavailableError:
            return False
        if queued:
            log.warning("a call runs again", call=record.call_id, reruns_left=record.reruns - 1)
        return queued

    async def _with_stored_body(self, record: CallRecord, ending: Ending) -> tuple[Ending, str]:
        """Put a large body into the blob store; the ending says so when it cannot be kept."""
        body, receipt = ending.body, ending.outcome.receipt
        if len(body) <= INLINE_LIMIT_BYTES:
            return ending, ""
        blobs = self._blobs
        if blobs is None:
            reason = "this worker has no blob store; set READIE_BLOB_URL"
            return outcomes.of_lost_result(len(body), reason, receipt), ""
        key = result_key(record.call_id, record.attempt)
        try:
            await persist("storing a result", lambda: blobs.put(key, body), self._patience)
        except BlobError as error:
            return outcomes.of_lost_result(len(body), str(error), receipt), ""
        return ending, key
