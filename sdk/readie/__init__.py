"""Run a Python function on a worker that has already imported what the function needs."""

from readie._call import Call
from readie._client import Client, configure, last_receipt
from readie._errors import (
    BlockingCallInEventLoopError,
    ClientClosedError,
    ClusterUnavailableError,
    ConfigurationError,
    ExecutionCancelledError,
    ExecutionError,
    IncompatiblePythonError,
    InvalidPackageError,
    InvalidRequestError,
    LogLine,
    OutOfMemoryError,
    PackageInstallError,
    PermissionDeniedError,
    ReadieError,
    RemoteExecutionError,
    RemoteExitError,
    RemoteTimeoutError,
    ResourceExhaustedError,
    ResultExpiredError,
    ResultNotSerializableError,
    ResultTooLargeError,
    SandboxDiedError,
    SerializationError,
    SessionExpiredError,
    StillRunningError,
    TransportError,
    WorkerLostError,
)
from readie._remote import RemoteFunction, remote
from readie._session import Session
from readie_wire.hooks import after_restore, before_checkpoint

__all__ = [
    "BlockingCallInEventLoopError",
    "Call",
    "Client",
    "ClientClosedError",
    "ClusterUnavailableError",
    "ConfigurationError",
    "ExecutionCancelledError",
    "ExecutionError",
    "IncompatiblePythonError",
    "InvalidPackageError",
    "InvalidRequestError",
    "LogLine",
    "OutOfMemoryError",
    "PackageInstallError",
    "PermissionDeniedError",
    "ReadieError",
    "RemoteExecutionError",
    "RemoteExitError",
    "RemoteFunction",
    "RemoteTimeoutError",
    "ResourceExhaustedError",
    "ResultExpiredError",
    "ResultNotSerializableError",
    "ResultTooLargeError",
    "SandboxDiedError",
    "SerializationError",
    "Session",
    "SessionExpiredError",
    "StillRunningError",
    "TransportError",
    "WorkerLostError",
    "after_restore",
    "before_checkpoint",
    "configure",
    "last_receipt",
    "remote",
]

# Tracebacks and pickles name the public place.
for _name in __all__:
    globals()[_name].__module__ = "readie"
del _name
