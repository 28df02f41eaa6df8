"""How a call ended, as Python has it: a value, or an exception."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from readie._distributions import likely_distribution
from readie._errors import (
    ClusterUnavailableError,
    ExecutionCancelledError,
    ExecutionError,
    IncompatiblePythonError,
    InvalidRequestError,
    LogLine,
    OutOfMemoryError,
    PackageInstallError,
    ReadieError,
    RemoteExecutionError,
    RemoteExitError,
    RemoteTimeoutError,
    ResourceExhaustedError,
    ResultNotSerializableError,
    ResultTooLargeError,
    SandboxDiedError,
    SerializationError,
    SessionExpiredError,
    WorkerLostError,
)
from readie._locality import Origin, locate
from readie._pickling import unpack
from readie._service import Ended
from readie_wire.outcome import Encoding, ErrorInfo, ErrorKind

E = TypeVar("E", bound=ReadieError)

_EXECUTION: Mapping[ErrorKind, type[ExecutionError]] = {
    ErrorKind.EXIT: RemoteExitError,
    ErrorKind.OUT_OF_MEMORY: OutOfMemoryError,
    ErrorKind.SANDBOX_DIED: SandboxDiedError,
    ErrorKind.WORKER_LOST: WorkerLostError,
    ErrorKind.RESULT_NOT_SERIALIZABLE: ResultNotSerializableError,
    ErrorKind.RESULT_TOO_LARGE: ResultTooLargeError,
    ErrorKind.PACKAGE_INSTALL: PackageInstallError,
}
_OF_REMOTE_FUNCTIONS = frozenset({"aio", "aspawn", "bind", "explain", "local", "spawn"})
_REFUSALS: Mapping[ErrorKind, Callable[[str], ReadieError]] = {
    ErrorKind.TIMEOUT: RemoteTimeoutError,
    ErrorKind.CANCELLED: ExecutionCancelledError,
    ErrorKind.EXPIRED: ClusterUnavailableError,
    ErrorKind.SESSION_BUSY: ResourceExhaustedError,
    ErrorKind.SESSION_ENDED: SessionExpiredError,
    ErrorKind.SERIALIZATION: SerializationError,
    ErrorKind.INCOMPATIBLE_PYTHON: IncompatiblePythonError,
    ErrorKind.INVALID_REQUEST: InvalidRequestError,
}


def value_of(ended: Ended, logs: Sequence[LogLine]) -> Any:
    """The result of a call. Raises what the function raised, or an error of Readie."""
    if ended.outcome.ok:
        return _loaded(ended, logs)
    error = ended.outcome.error or ErrorInfo(ErrorKind.EXCEPTION, "Exception", "no description")
    if error.kind is ErrorKind.EXCEPTION:
        _raise_remote(error, ended, logs)
    raise _with_call(_error_for(error), ended, logs)


def _loaded(ended: Ended, logs: Sequence[LogLine]) -> Any:
    match ended.outcome.encoding:
        case Encoding.JSON:
            return json.loads(ended.body)
        case Encoding.NONE:
            return None
    try:
        return unpack(ended.body)
    except Exception as problem:
        error = SerializationError(
            f"the function returned a value that cannot be loaded here ({problem}): return plain "
            "data, or install here what the worker has"
        )
        raise _with_call(error, ended, logs) from problem


def _raise_remote(error: ErrorInfo, ended: Ended, logs: Sequence[LogLine]) -> NoReturn:
    """The function's own exception, if it came through; its cause shows the remote traceback."""
    remote = _with_call(RemoteExecutionError(error), ended, logs)
    if hint := _missing_module_hint(error) or _plain_function_hint(error):
        remote.add_note(hint)
    if not ended.body:
        raise remote
    try:
        original = unpack(ended.body)
    except Exception as problem:
        raise remote from problem
    # A remote KeyboardInterrupt or SystemExit must never pass for one of this process.
    if not isinstance(original, Exception):
        raise remote
    raise original from remote


def _error_for(error: ErrorInfo) -> ReadieError:
    details = error.details
    message = error.message or error.type
    if error.kind is ErrorKind.EXIT:
        message = f"the function called sys.exit({error.message})"
    if (refusal := _REFUSALS.get(error.kind)) is not None:
        refused = refusal(message)
        if isinstance(refused, InvalidRequestError):
            refused.field = str(details.get("field", ""))
        return refused
    if error.traceback:
        message = f"{message}\n\nRemote traceback:\n{error.traceback.rstrip()}"
    failed = _EXECUTION.get(error.kind, ExecutionError)(message, error)
    match failed:
        case RemoteExitError():
            failed.code = details.get("exit_code")
        case OutOfMemoryError():
            failed.limit, failed.peak = details.get("limit"), details.get("peak")
        case SandboxDiedError():
            failed.exit_code, failed.signal = details.get("exit_code"), details.get("signal")
        case ResultTooLargeError():
            failed.size, failed.limit = details.get("size"), details.get("limit")
    return failed


def _with_call(error: E, ended: Ended, logs: Sequence[LogLine]) -> E:
    error.receipt = ended.outcome.receipt
    error.logs = tuple(logs)
    return error


def _missing_module_hint(error: ErrorInfo) -> str:
    prefix, _, name = error.message.partition("No module named ")
    if error.type.rpartition(".")[2] != "ModuleNotFoundError" or prefix:
        return ""
    module = name.strip("'\"").partition("'")[0]
    if locate(module).origin is Origin.LOCAL:
        return (
            f"Hint: {module} is a module of yours that nothing in the function names, so it did not "
            f"travel with the call: write `import {module}` in the function."
        )
    distribution = likely_distribution(module)
    of = f"{distribution}, which holds {module}," if distribution else module
    return f"Hint: the worker has no {module}: {of} must be installed on the workers."


def _plain_function_hint(error: ErrorInfo) -> str:
    _, found, name = error.message.partition("'function' object has no attribute ")
    if error.type != "AttributeError" or not found or name.strip("'") not in _OF_REMOTE_FUNCTIONS:
        return ""
    return "Hint: inside a sandbox a remote function is the plain function; call it as that."
