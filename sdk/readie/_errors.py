"""Every error that Readie raises.

ReadieError
├── ConfigurationError            (also a ValueError) options, address, token, decorator use
│   └── InvalidPackageError
├── IncompatiblePythonError       the workers run another minor version of Python
├── SerializationError            the call cannot be sent, with the path to what is in the way
├── ClientClosedError
├── BlockingCallInEventLoopError  a blocking call inside a coroutine
├── StillRunningError             (also a TimeoutError) the wait is over, the call is not
├── TransportError                the service did not run the call, or did not keep its end
│   ├── ClusterUnavailableError   nobody answers, or no worker took the call
│   ├── RemoteTimeoutError        (also a TimeoutError) the call ran out of its time
│   ├── InvalidRequestError
│   ├── ResourceExhaustedError    queue full, or larger than every worker
│   ├── ExecutionCancelledError
│   ├── PermissionDeniedError
│   ├── SessionExpiredError
│   └── ResultExpiredError
└── ExecutionError                the call was started and has no value
    ├── RemoteExecutionError      the function raised
    ├── RemoteExitError           the function called sys.exit
    ├── OutOfMemoryError
    ├── SandboxDiedError          exit code or signal
    ├── WorkerLostError
    ├── ResultNotSerializableError
    ├── ResultTooLargeError
    └── PackageInstallError
"""

from collections.abc import Sequence
from dataclasses import dataclass

from readie_wire.outcome import ErrorInfo, Receipt

_FROM_CAUSE = "The above exception was the direct cause of the following exception:"
_IN_CONTEXT = "During handling of the above exception, another exception occurred:"


@dataclass(frozen=True, slots=True)
class LogLine:
    """A piece of what a call printed: ``stream`` is ``"stdout"`` or ``"stderr"``."""

    stream: str
    text: str
    seq: int = 0


class ReadieError(Exception):
    """Base of all errors of Readie.

    ``receipt`` and ``logs`` are those of the call that the error is about, where it got far enough
    to have them.
    """

    receipt: Receipt | None = None
    logs: Sequence[LogLine] = ()


class ConfigurationError(ReadieError, ValueError):
    """An option, an address, a token or a use of ``remote`` that cannot be right."""


class InvalidPackageError(ConfigurationError):
    """``packages`` holds something that is not a requirement."""


class IncompatiblePythonError(ReadieError):
    """Functions travel as bytecode, so the workers must run the caller's minor version."""


class SerializationError(ReadieError):
    """The function, an argument or the call's bytes cannot travel.

    ``path`` leads from the function or the argument to the object in the way.
    """

    def __init__(self, message: str, path: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.path = tuple(path)


class ClientClosedError(ReadieError):
    """The client was closed before this call."""


class BlockingCallInEventLoopError(ReadieError):
    """A blocking call inside a coroutine would stop its event loop: use ``.aio``."""


class StillRunningError(ReadieError, TimeoutError):
    """The time given to ``get`` is over. The call goes on; ``get`` may be called again."""


class TransportError(ReadieError):
    """The service refused the call, could not be reached, or ended it. ``code`` is its word for it."""

    code: str = ""


class ClusterUnavailableError(TransportError):
    """Nobody answers at the address, or no worker took the call in time."""


class RemoteTimeoutError(TransportError, TimeoutError):
    """The call was ended because its ``timeout`` was over."""


class InvalidRequestError(TransportError):
    """The service does not accept the request. ``field`` names the part, where there is one."""

    field: str = ""


class ResourceExhaustedError(TransportError):
    """Try again later (``retry_after`` seconds), or ask for less."""

    retry_after: float | None = None


class ExecutionCancelledError(TransportError):
    """The call was cancelled before it had a result."""


class PermissionDeniedError(TransportError):
    """The token is missing, wrong, or not allowed to do this."""


class SessionExpiredError(TransportError):
    """The session is over and its sandbox is gone."""


class ResultExpiredError(TransportError):
    """The call is over, and so is the time for which its result was kept."""


class ExecutionError(ReadieError):
    """The call was started on a worker and has no value to give. ``remote`` is what was reported."""

    def __init__(self, message: str, remote: ErrorInfo | None = None) -> None:
        super().__init__(message)
        self.remote = remote


class RemoteExecutionError(ExecutionError):
    """The function raised, and the exception itself could not come back, or this is its cause.

    ``remote_type`` is the exception's qualified name, ``message`` its text, ``traceback`` the
    remote traceback, chained exceptions included.
    """

    def __init__(self, remote: ErrorInfo) -> None:
        super().__init__(_described(remote), remote)
        self.remote_type = remote.type
        self.message = remote.message
        self.traceback = _traced(remote)

    def __reduce__(self) -> tuple[type, tuple[ErrorInfo | None]]:
        return type(self), (self.remote,)


class RemoteExitError(ExecutionError):
    """The function called ``sys.exit``. ``code`` is what the process would exit with: 1 for a text."""

    code: int | None = None


class OutOfMemoryError(ExecutionError):
    """The call needed more memory than it may have. ``limit`` and ``peak`` in bytes."""

    limit: int | None = None
    peak: int | None = None


class SandboxDiedError(ExecutionError):
    """The process ended under the function: ``exit_code``, or ``signal`` such as ``"SIGSEGV"``."""

    exit_code: int | None = None
    signal: str | None = None


class WorkerLostError(ExecutionError):
    """The worker that ran the call is gone; nobody knows how far it came."""


class ResultNotSerializableError(ExecutionError):
    """The function returned something that cannot travel."""


class ResultTooLargeError(ExecutionError):
    """The result is over the limit. ``size`` and ``limit`` in bytes."""

    size: int | None = None
    limit: int | None = None


class PackageInstallError(ExecutionError):
    """A package of ``packages`` could not be installed."""


def _described(remote: ErrorInfo) -> str:
    text = f"{remote.type}: {remote.message}" if remote.message else remote.type
    trace = _traced(remote)
    return f"{text}\n\nRemote traceback:\n{trace.rstrip()}" if trace else text


def _traced(remote: ErrorInfo) -> str:
    """The traceback with those of the errors before it, in the words and order of Python's own."""
    if remote.cause is None:
        return remote.traceback
    link = _IN_CONTEXT if remote.context else _FROM_CAUSE
    return f"{_traced(remote.cause).rstrip()}\n\n{link}\n\n{remote.traceback}"
