"""The outcomes of calls that no worker ends. Call, attempt and times are completed by the reader."""

from readie_wire.outcome import ErrorInfo, ErrorKind, Outcome, Receipt


def expired() -> Outcome:
    return _ending(
        ErrorKind.EXPIRED,
        "readie.ClusterUnavailableError",
        "no worker took the call within its queue_timeout; it did not run",
    )


def expired_again() -> Outcome:
    return _ending(
        ErrorKind.WORKER_LOST,
        "readie.WorkerLostError",
        "the call's sandbox or worker was lost while it ran, and no worker took it for another run",
    )


def lost() -> Outcome:
    return _ending(
        ErrorKind.WORKER_LOST,
        "readie.WorkerLostError",
        "the worker that held the call is gone and has not reported its end; "
        "the function may have run in part",
    )


def cancelled(reason: str = "") -> Outcome:
    message = "the call was cancelled" + (f": {reason}" if reason else "")
    return _ending(ErrorKind.CANCELLED, "readie.ExecutionCancelledError", message)


def session_busy() -> Outcome:
    return _ending(
        ErrorKind.SESSION_BUSY,
        "readie.ResourceExhaustedError",
        "earlier calls of the session took longer than the call's queue_timeout; it did not run",
    )


def session_ended(reason: str) -> Outcome:
    return _ending(
        ErrorKind.SESSION_ENDED,
        "readie.SessionExpiredError",
        f"the session ended before the call's turn came, so it did not run: {reason}",
    )


def unreadable(detail: str) -> Outcome:
    return _ending(
        ErrorKind.INVALID_REQUEST,
        "readie.InvalidRequestError",
        f"the worker cannot read the call's record: {detail}",
    )


def _ending(kind: ErrorKind, type_name: str, message: str) -> Outcome:
    error = ErrorInfo(kind=kind, type=type_name, message=message)
    return Outcome(ok=False, receipt=Receipt(call_id=""), error=error)
