"""From the way a call ended to what its caller is told. Pure."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from readie_wire.framing import FrameType, Message
from readie_wire.lifecycle import State
from readie_wire.outcome import Encoding, ErrorInfo, ErrorKind, Outcome, Receipt
from readie_worker.errors import Stop, StopKind
from readie_worker.sandbox.api import SandboxExit

MISSED_IMPORTS = 200  # names in a receipt; a sandbox may claim any number
MB = 1_000_000
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Ending:
    """A terminal state, the outcome, and the bytes of the result or of the pickled exception."""

    state: State
    outcome: Outcome
    body: bytes = b""


def of_message(message: Message, receipt: Receipt, *, memory: int) -> Ending:
    """The executor's RESULT or ERROR. Its numbers are claims of a sandbox: checked, bounded.

    ``memory`` is the limit in bytes that the function had.
    """
    header = message.header
    import_ms = _number(header, "import_ms")
    receipt = replace(
        receipt,
        import_ms=import_ms,
        measured_start_ms=receipt.start_ms + import_ms,
        run_ms=_number(header, "run_ms"),
        imports_missed=_names(header.get("imports_missed")),
        peak_memory_mb=_megabytes(header.get("peak_memory")) or receipt.peak_memory_mb,
    )
    encoding = _encoding(header.get("encoding"))
    size = len(message.body)
    if message.type is FrameType.RESULT:
        outcome = Outcome(ok=True, receipt=receipt, encoding=encoding, size=size)
        return Ending(State.SUCCEEDED, outcome, message.body)
    error = _error(header.get("error"))
    if error.kind is ErrorKind.OUT_OF_MEMORY:  # its own limit is the call's and what we add to it
        peak = header.get("peak_memory")
        told = of_memory(receipt, limit=memory, peak=peak if isinstance(peak, int) else None)
        if told.outcome.error is not None:
            error = replace(told.outcome.error, traceback=error.traceback)
    outcome = Outcome(ok=False, receipt=receipt, error=error, encoding=encoding, size=size)
    return Ending(State.FAILED, outcome, message.body)


def of_death(
    exit_: SandboxExit | None, receipt: Receipt, *, memory: int, last_lines: Sequence[str]
) -> Ending:
    """The sandbox ended, or fell silent, without an answer. ``memory`` is its limit in bytes."""
    if exit_ is not None and exit_.peak_memory:
        receipt = replace(receipt, peak_memory_mb=exit_.peak_memory / MB)
    details: dict[str, Any] = {"last_lines": list(last_lines)}
    if exit_ is not None and exit_.out_of_memory:
        return of_memory(receipt, limit=memory, peak=exit_.peak_memory, **details)
    if exit_ is None:
        how = "stopped answering"
    elif exit_.signal is not None:
        name = _signal_name(exit_.signal)
        details["signal"] = name
        how = f"was ended by {name}"
    else:
        details["exit_code"] = exit_.exit_code
        how = f"ended with exit code {exit_.exit_code}"
    if exit_ is not None and exit_.crowded:
        how = f"needed more processes than it may have, and {how}"
    message = f"the sandbox {how} before the function returned"
    if last_lines:
        # On lines of their own: lists and notices show the first line alone.
        message += "\nits last lines:\n" + "\n".join(last_lines)
    return _failed(ErrorKind.SANDBOX_DIED, "SandboxDiedError", message, receipt, details)


def of_memory(receipt: Receipt, *, limit: int, peak: int | None, **details: Any) -> Ending:
    """The call needed more memory than its ``limit``; ``peak`` is what it had. Bytes."""
    details |= {"limit": limit, "peak": peak}
    message = f"the call used more than its {limit / MIB:.0f} MiB of memory"
    return _failed(ErrorKind.OUT_OF_MEMORY, "OutOfMemoryError", message, receipt, details)


def of_stop(stop: Stop, receipt: Receipt, *, timeout: float) -> Ending:
    """The worker ended the call, for its time, its caller or its own end."""
    if stop.kind is StopKind.TIMEOUT:
        message = f"the function ran longer than its timeout of {timeout:g} s"
        details = {"limit": timeout}
        return _failed(ErrorKind.TIMEOUT, "RemoteTimeoutError", message, receipt, details)
    if stop.kind is StopKind.CANCELLED:
        message = f"the call was cancelled{f': {stop.reason}' if stop.reason else ''}"
        ending = _failed(ErrorKind.CANCELLED, "ExecutionCancelledError", message, receipt, {})
        return replace(ending, state=State.CANCELLED)
    if stop.kind is StopKind.UNHEARD:
        message = f"the worker ended the call, which may run elsewhere by now: {stop.reason}"
        return _failed(ErrorKind.WORKER_LOST, "WorkerLostError", message, receipt, {})
    message = (
        f"the worker was stopped while the function ran{f': {stop.reason}' if stop.reason else ''}"
    )
    return _failed(ErrorKind.WORKER_LOST, "WorkerLostError", message, receipt, {})


def of_refusal(error: ErrorInfo, receipt: Receipt) -> Ending:
    return Ending(State.FAILED, Outcome(ok=False, receipt=receipt, error=error))


def of_failed_start(reason: str, receipt: Receipt) -> Ending:
    """Neither the chosen start nor a cold one reached the function."""
    message = f"no sandbox could be started: {reason}"
    return _failed(ErrorKind.SANDBOX_DIED, "SandboxDiedError", message, receipt, {})


def of_gone_session(reason: str, receipt: Receipt) -> Ending:
    """The session's sandbox was there no more when the call came to it; the call did not run."""
    message = f"the session's sandbox is gone, so the call did not run: {reason}"
    return _failed(ErrorKind.SESSION_ENDED, "SessionExpiredError", message, receipt, {})


def with_its_session(ending: Ending) -> Ending:
    """The same, saying that the session of the call is over as well."""
    error = ending.outcome.error
    if error is None or error.kind is ErrorKind.SESSION_ENDED:
        return ending
    first, newline, rest = error.message.partition("\n")
    message = f"{first}; its session has ended with it{newline}{rest}"
    outcome = replace(ending.outcome, error=replace(error, message=message))
    return replace(ending, outcome=outcome)


def of_lost_result(size: int, reason: str, receipt: Receipt) -> Ending:
    """The function returned, and its large result could not be kept anywhere."""
    message = f"the result of {size} bytes could not be stored: {reason}"
    return _failed(ErrorKind.WORKER_LOST, "WorkerLostError", message, receipt, {"size": size})


def of_fault(problem: str, receipt: Receipt) -> Ending:
    """The worker itself failed; whether the function ran is not known."""
    message = f"the worker failed while it ran the call: {problem}"
    return _failed(ErrorKind.WORKER_LOST, "WorkerLostError", message, receipt, {})


def _failed(
    kind: ErrorKind, name: str, message: str, receipt: Receipt, details: Mapping[str, Any]
) -> Ending:
    error = ErrorInfo(kind=kind, type=f"readie.{name}", message=message, details=details)
    return of_refusal(error, receipt)


def _error(value: Any) -> ErrorInfo:
    if isinstance(value, Mapping):
        try:
            return ErrorInfo.from_json(value)
        except (TypeError, ValueError, AttributeError, RecursionError):
            pass
    return ErrorInfo(
        kind=ErrorKind.SANDBOX_DIED,
        type="readie.SandboxDiedError",
        message="the sandbox reported an error that cannot be read",
    )


def _number(header: Mapping[str, Any], key: str) -> float:
    value = header.get(key)
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1e12 else 0.0


def _megabytes(value: Any) -> float | None:
    return value / MB if isinstance(value, (int, float)) and 0 < value < 1 << 50 else None


def _names(value: Any) -> Sequence[str]:
    if not isinstance(value, list):
        return ()
    return tuple(name[:200] for name in value[:MISSED_IMPORTS] if isinstance(name, str))


def _encoding(value: Any) -> Encoding:
    return Encoding(value) if isinstance(value, str) and value in set(Encoding) else Encoding.NONE


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
