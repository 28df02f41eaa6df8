"""The bytes of a call's result (or of its pickled exception), wherever they are kept."""

from readie_gateway.errors import (
    NoWorkerError,
    ResultExpiredError,
    SessionBusyError,
    SessionExpiredError,
)
from readie_gateway.fleet import Fleet
from readie_gateway.services import Services
from readie_infra.errors import BlobMissingError
from readie_wire.lifecycle import State
from readie_wire.outcome import ErrorInfo, ErrorKind, Outcome, Receipt
from readie_wire.records import CallRecord

SESSION_RETRY_AFTER_S = 1


async def read_result(services: Services, record: CallRecord) -> bytes:
    """Raises `ResultExpiredError` when its blob is gone, and `BlobUnavailableError`."""
    if not record.result_blob:
        return record.result
    if services.blobs is None:
        raise ResultExpiredError(
            f"the result of {record.call_id} is in a blob store that this gateway does not have; "
            "set READIE_BLOB_URL as it is on the workers"
        )
    try:
        return await services.blobs.get(record.result_blob)
    except BlobMissingError as error:
        raise ResultExpiredError(f"the result of {record.call_id} has been removed") from error


def outcome_of(record: CallRecord) -> Outcome:
    """How a call that is over ended."""
    if record.outcome is not None:
        return record.outcome
    error = ErrorInfo(
        ErrorKind.WORKER_LOST,
        "readie.WorkerLostError",
        f"the call is {record.state}; no more is known",
    )
    return Outcome(ok=False, receipt=Receipt(record.call_id), error=error)


def refuse_unserved(fleet: Fleet, record: CallRecord) -> None:
    """Raise for a call that never ran, through no fault of its own.

    `NoWorkerError` where no worker took it in time, with what the fleet lacks; `SessionBusyError`
    and `SessionExpiredError` for what its session did to it.
    """
    error = record.outcome.error if record.outcome else None
    extra = {"call_id": record.call_id}
    if error is not None and error.kind is ErrorKind.SESSION_ENDED:
        raise SessionExpiredError(error.message, field="options.session", extra=extra)
    if error is not None and error.kind is ErrorKind.SESSION_BUSY:
        headers = {"Retry-After": str(SESSION_RETRY_AFTER_S)}
        field = "options.session"
        raise SessionBusyError(error.message, field=field, headers=headers, extra=extra)
    if record.state is not State.EXPIRED:
        return
    waited = record.options.get("queue_timeout", 0)
    workers = fleet.of_flavor(record.flavor)
    if not workers:
        why = f"there is no {record.flavor} worker"
    elif all(worker.error for worker in workers):
        why = "; ".join(sorted({worker.error for worker in workers}))
    elif record.exposed and all(worker.isolation == "none" for worker in workers):
        why = (
            "the workers isolate nothing (runtime fork), and this gateway is reachable from other "
            "machines; run gvisor workers, or allow it with READIE_ALLOW_UNSANDBOXED=true on them"
        )
    else:
        why = f"all {len(workers)} workers were busy, or had too little memory free"
    raise NoWorkerError(
        f"no worker took the call within its queue_timeout of {waited:g} s, so it did not run: {why}",
        extra=extra,
    )
