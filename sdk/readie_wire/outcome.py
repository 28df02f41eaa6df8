"""How a call ended, as JSON: the error, the receipt, and the object that all responses share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Self


class ErrorKind(StrEnum):
    """What went wrong, for programs; ``readie`` raises one class for each."""

    EXCEPTION = "exception"  # the function raised
    EXIT = "exit"  # the function called sys.exit
    OUT_OF_MEMORY = "out_of_memory"
    SANDBOX_DIED = "sandbox_died"
    WORKER_LOST = "worker_lost"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    EXPIRED = "expired"  # no worker took the call in time
    SESSION_BUSY = "session_busy"  # earlier calls of its session took longer than its queue_timeout
    SESSION_ENDED = "session_ended"  # its session ended before its turn came
    SERIALIZATION = "serialization"  # the call's bytes could not be turned into a function
    RESULT_NOT_SERIALIZABLE = "result_not_serializable"
    RESULT_TOO_LARGE = "result_too_large"
    PACKAGE_INSTALL = "package_install"
    INCOMPATIBLE_PYTHON = "incompatible_python"
    INVALID_REQUEST = "invalid_request"  # found out only by the worker, such as a pin it lacks


class StartKind(StrEnum):
    """How the sandbox of a call came to be."""

    COLD = "cold"  # a fresh interpreter
    FORKED = "forked"  # a child of a zygote, spare or on request
    RESTORED = "restored"  # a checkpoint restored for this call
    POOL = "pool"  # a sandbox restored ahead of the call
    SESSION = "session"  # the sandbox the session already had


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """One error and, through ``cause``, the errors before it.

    ``type`` is the qualified name (``"httpx.ConnectError"``), ``traceback`` is text. ``context``
    tells that ``cause`` is an implicit ``__context__`` and not a ``raise … from``. ``members`` are
    those of an exception group. ``details`` holds numbers by kind: ``exit_code``, ``signal``,
    ``limit``, ``size``, ``peak``, ``path``, ``attributes``.
    """

    kind: ErrorKind
    type: str
    message: str
    traceback: str = ""
    cause: "ErrorInfo | None" = None
    context: bool = False
    notes: Sequence[str] = ()
    members: Sequence["ErrorInfo"] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": str(self.kind),
            "type": self.type,
            "message": self.message,
            "traceback": self.traceback,
            "cause": self.cause.to_json() if self.cause else None,
            "context": self.context,
            "notes": list(self.notes),
            "members": [member.to_json() for member in self.members],
            "details": dict(self.details),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Tolerates missing and unknown keys; an unknown kind reads as ``exception``."""
        kind = value.get("kind")
        cause = value.get("cause")
        return cls(
            kind=ErrorKind(kind) if kind in set(ErrorKind) else ErrorKind.EXCEPTION,
            type=str(value.get("type", "Exception")),
            message=str(value.get("message", "")),
            traceback=str(value.get("traceback", "")),
            cause=cls.from_json(cause) if isinstance(cause, Mapping) else None,
            context=bool(value.get("context", False)),
            notes=tuple(str(note) for note in value.get("notes", ())),
            members=tuple(cls.from_json(member) for member in value.get("members", ())),
            details=dict(value.get("details", {})),
        )


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a call was given and what it cost. Times in milliseconds, sizes in MB (10^6 bytes).

    ``queue_ms`` enqueued → taken; ``start_ms`` taken → the function's bytes may run; ``import_ms``
    first imports during the call; ``run_ms`` the function itself, imports excluded; ``total_ms``
    enqueued → outcome stored. ``predicted_ms`` is the price: what was expected of imports and size.
    ``predicted_start_ms`` is with what any start costs, and to be held against ``measured_start_ms``,
    which is start and imports; `None` where nothing was predicted, or no function started.
    """

    call_id: str
    start_kind: StartKind | None = None
    checkpoint: str | None = None
    generation: str | None = None
    runtime: str | None = None
    queue_ms: float = 0.0
    start_ms: float = 0.0
    import_ms: float = 0.0
    run_ms: float = 0.0
    total_ms: float = 0.0
    predicted_ms: float | None = None
    peak_memory_mb: float | None = None
    attempt: int = 0
    worker_id: str | None = None
    fallback_reason: str | None = None
    imports_missed: Sequence[str] = ()  # modules first imported during the call
    predicted_start_ms: float | None = None
    measured_start_ms: float | None = None

    def to_json(self) -> dict[str, Any]:
        # Not dataclasses.asdict: it copies deeply, which costs each call more than its HTTP parsing.
        value = {name: getattr(self, name) for name in RECEIPT_FIELDS}
        value["start_kind"] = None if self.start_kind is None else str(self.start_kind)
        value["imports_missed"] = list(self.imports_missed)
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Ignores keys that a newer writer added."""
        given = {key: item for key, item in value.items() if key in RECEIPT_FIELDS}
        kind = given.get("start_kind")
        given["start_kind"] = StartKind(kind) if kind in set(StartKind) else None
        return cls(**given)


RECEIPT_FIELDS = tuple(item.name for item in fields(Receipt))


class Encoding(StrEnum):
    """How the body of a result (or a pickled exception) is encoded."""

    NONE = "none"
    PICKLE = "pickle"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a call, without the bytes of its result.

    ``encoding`` and ``size`` describe the result's body (``ok``) or the pickled exception.
    """

    ok: bool
    receipt: Receipt
    error: ErrorInfo | None = None
    encoding: Encoding = Encoding.NONE
    size: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "error": self.error.to_json() if self.error else None,
            "receipt": self.receipt.to_json(),
            "encoding": str(self.encoding),
            "size": self.size,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        error = value.get("error")
        return cls(
            ok=bool(value["ok"]),
            receipt=Receipt.from_json(value["receipt"]),
            error=ErrorInfo.from_json(error) if isinstance(error, Mapping) else None,
            encoding=Encoding(value.get("encoding", "none")),
            size=int(value.get("size", 0)),
        )
