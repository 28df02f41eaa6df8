"""Errors of the worker itself; those of sandbox runtimes are in ``sandbox.errors``.

WorkerError
├── ConfigurationError     the settings cannot work on this machine: which, and the remedy
├── GenerationError        a folder is not a generation that this worker can serve: why
│   └── UnfitError         a checkpoint of it cannot be restored here: why, and in a word
├── NotStartedError        no sandbox reached the function; starting another one is safe
├── CallRefusedError       the call cannot be run as asked; carries the error its caller gets
└── FencedError            the call is not ours any more; whatever we know of it is void
"""

from dataclasses import dataclass
from enum import StrEnum

from readie_wire.holdings import Refusal, RefusalKind
from readie_wire.outcome import ErrorInfo


class StopKind(StrEnum):
    """Why the worker ended a call from outside."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    SHUTDOWN = "shutdown"
    MEMORY = "memory"  # it uses more than it may have
    UNHEARD = "unheard"  # its beats do not arrive: somebody else may run the call


@dataclass(frozen=True, slots=True)
class Stop:
    kind: StopKind
    reason: str = ""


class WorkerError(Exception):
    """Base of everything the worker raises on purpose."""


class ConfigurationError(WorkerError):
    """A setting cannot work here; the message names it and the remedy."""


class GenerationError(WorkerError):
    """A generation, or one checkpoint of it, cannot be served here; the message is the reason."""


class UnfitError(GenerationError):
    """One checkpoint cannot be restored here."""

    def __init__(self, kind: RefusalKind, reason: str) -> None:
        super().__init__(reason)
        self.refusal = Refusal(kind, reason)


class NotStartedError(WorkerError):
    """The function's bytes were never touched; the message is the reason for the receipt."""


class CallRefusedError(WorkerError):
    """The call ends before any sandbox is made. ``error`` is what its caller is told."""

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(error.message)
        self.error = error


class StoppedError(WorkerError):
    """Leaves the run of a call that was stopped; ``stop`` says why."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(f"{stop.kind} {stop.reason}".strip())
        self.stop = stop


class FencedError(WorkerError):
    """The store says that another owner, a cancellation or an expiry came first."""
