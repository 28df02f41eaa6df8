"""Runs one call and gives the one message that answers it."""

import os
import resource
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from readie_executor import calling, exceptions, output, results
from readie_executor.importing import ImportTimer
from readie_wire.envelope import CallKind
from readie_wire.framing import FrameType
from readie_wire.outcome import Encoding, ErrorInfo, ErrorKind

# What `ru_maxrss` counts in: kilobytes on Linux, bytes on macOS.
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """A RESULT or ERROR message to be."""

    type: FrameType
    header: Mapping[str, Any]
    body: bytes = b""


def answer(call: calling.Call) -> Answer:
    """Run the call to its end, whatever it does. Never returns in a process the call forked."""
    owner = os.getpid()
    begun = time.perf_counter()
    timer = ImportTimer()
    try:
        with timer:
            value = calling.run(calling.load(call))
            _end_if_forked(owner, 0)
            run_ms = _run_ms(begun, timer)
            body = results.encode(value, call.result_encoding, call.result_limit)
    except BaseException as error:
        _end_if_forked(owner, error)
        return _failed(call, error, _measured(timer, _run_ms(begun, timer)))
    header = {
        "encoding": str(call.result_encoding),
        "size": len(body),
        **_measured(timer, run_ms),
        "peak_memory": peak_memory(),
    }
    return Answer(FrameType.RESULT, header, body)


def peak_memory() -> int:
    """The most bytes this process has had resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_UNIT


def _run_ms(begun: float, timer: ImportTimer) -> float:
    return max(0.0, time.perf_counter() - begun - timer.seconds) * 1000


def _measured(timer: ImportTimer, run_ms: float) -> dict[str, Any]:
    return {
        "import_ms": round(timer.seconds * 1000, 3),
        "run_ms": round(run_ms, 3),
        "imports_missed": list(timer.names),
    }


def _failed(call: calling.Call, error: BaseException, measured: Mapping[str, Any]) -> Answer:
    if isinstance(error, calling.CallRefusedError | results.ResultRefusedError):
        return _error(error.info, b"", measured)
    if isinstance(error, MemoryError) and (limit := _memory_limit()) is not None:
        return _error(_out_of_memory(error, limit), b"", measured)
    body = b""
    if call.kind is CallKind.PICKLE:
        body = exceptions.pickled(
            error, lambda value: results.dump_pickle(value, exceptions.MAX_PICKLED)
        )
    return _error(exceptions.describe(error), body, measured)


def _error(info: ErrorInfo, body: bytes, measured: Mapping[str, Any]) -> Answer:
    encoding = Encoding.PICKLE if body else Encoding.NONE
    header = {"error": info.to_json(), "encoding": str(encoding), "size": len(body), **measured}
    return Answer(FrameType.ERROR, {**header, "peak_memory": peak_memory()}, body)


def _memory_limit() -> int | None:
    """The limit in bytes that allocations of this process met, if it has one."""
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if soft == resource.RLIM_INFINITY else soft


def _out_of_memory(error: MemoryError, limit: int) -> ErrorInfo:
    """The function met the limit; lift it, since saying so takes memory too."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    traceback.clear_frames(error.__traceback__)  # the function's own variables are the weight
    return replace(
        exceptions.describe(error),
        kind=ErrorKind.OUT_OF_MEMORY,
        details={"limit": limit, "peak": peak_memory()},
    )


def _end_if_forked(owner: int, reason: BaseException | int) -> None:
    """A child that the function forked came back up here: it has nothing to tell the worker."""
    if os.getpid() == owner:
        return
    code = reason
    if isinstance(reason, SystemExit):
        code = exceptions.exit_code(reason)
    elif isinstance(reason, BaseException):
        traceback.print_exception(reason)
        code = 1
    output.flush()
    os._exit(code if isinstance(code, int) else 1)
