"""What the processes of a fleet keep in Redis about calls and workers, as hash fields.

Values are bytes or text; JSON where a field is structured. A reader ignores fields it does not
know, and refuses a record whose ``v`` it does not read.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

from readie_wire.envelope import CallKind
from readie_wire.holdings import Holding
from readie_wire.lifecycle import State
from readie_wire.outcome import Outcome
from readie_wire.versions import ENVELOPE_VERSION, READABLE_ENVELOPES, require_readable


@dataclass(frozen=True, slots=True)
class Choice:
    """What pricing picked. ``checkpoint`` ``None`` means a cold start; times in seconds.

    ``predicted_s`` and ``cold_s`` are prices, ``predicted_start_s`` and ``cold_start_s`` the times that
    such starts are expected to take: with what any start costs.
    """

    generation: str | None = None
    checkpoint: str | None = None
    pinned: bool = False
    predicted_s: float | None = None
    cold_s: float | None = None
    reason: str = ""
    predicted_start_s: float | None = None
    cold_start_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "checkpoint": self.checkpoint,
            "pinned": self.pinned,
            "predicted_s": self.predicted_s,
            "cold_s": self.cold_s,
            "reason": self.reason,
            "predicted_start_s": self.predicted_start_s,
            "cold_start_s": self.cold_start_s,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            **{key: value.get(key) for key in ("generation", "checkpoint")},
            pinned=bool(value.get("pinned", False)),
            predicted_s=value.get("predicted_s"),
            cold_s=value.get("cold_s"),
            reason=str(value.get("reason", "")),
            predicted_start_s=value.get("predicted_start_s"),
            cold_start_s=value.get("cold_start_s"),
        )

    @property
    def key(self) -> str | None:
        """``"generation/checkpoint_3"``, the exact name of a checkpoint in the fleet."""
        if self.generation is None or self.checkpoint is None:
            return None
        return f"{self.generation}/{self.checkpoint}"


def reruns_allowed(options: Mapping[str, Any]) -> int:
    """How often a call may run again when its sandbox or its worker was lost under it.

    ``retries`` says it; a call that is ``idempotent`` may run twice without harm, so once at least.
    """
    return max(int(options.get("retries") or 0), 1 if options.get("idempotent") else 0)


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call, ``call:{id}``. Times are milliseconds of the Redis server's clock.

    ``payload`` is inline up to the inline limit, else ``payload_blob`` names it in the blob store;
    likewise ``result`` and ``result_blob``. ``options`` are validated and complete.
    """

    call_id: str
    state: State
    token: str
    flavor: str
    kind: CallKind
    function: str
    python: str = ""
    imports: Sequence[str] = ()
    needs: Sequence[str] = ()
    choice: Choice = field(default_factory=Choice)
    options: Mapping[str, Any] = field(default_factory=dict)
    exposed: bool = False
    waited: bool = True
    owner: str = ""
    attempt: int = 0
    created_ms: int = 0
    taken_ms: int = 0
    started_ms: int = 0
    finished_ms: int = 0
    cancel: str = ""
    payload: bytes = b""
    payload_blob: str = ""
    outcome: Outcome | None = None
    result: bytes = b""
    result_blob: str = ""
    reruns: int = 0  # how often it may still run again; see `reruns_allowed`
    session: str = ""
    sealed: str = ""  # its secrets, for who has the key
    modules: Sequence[str] = ()  # top-level names of the caller's own modules in the payload

    def new_fields(self) -> dict[str, str | bytes]:
        """The fields a gateway writes when it enqueues; the scripts add states and times."""
        return {
            "v": str(ENVELOPE_VERSION),
            "token": self.token,
            "flavor": self.flavor,
            "kind": str(self.kind),
            "function": self.function,
            "python": self.python,
            "imports": _dump(list(self.imports)),
            "needs": _dump(list(self.needs)),
            "choice": _dump(self.choice.to_json()),
            "choice_key": self.choice.key or "",
            "options": _dump(self.options),
            "exposed": "1" if self.exposed else "0",
            "waited": "1" if self.waited else "0",
            "payload": self.payload,
            "payload_blob": self.payload_blob,
            "reruns": str(reruns_allowed(self.options)),
            "session": self.session,
            "sealed": self.sealed,
            "modules": _dump(list(self.modules)),
            "priority": str(int(self.options.get("priority") or 0)),
            "flavor_only": "1" if self.options.get("flavor") else "0",
        }

    @classmethod
    def from_fields(cls, call_id: str, fields: Mapping[bytes, bytes]) -> Self:
        """Read a hash as redis gives it. Raises `UnsupportedVersionError`, `ValueError`."""
        version = fields.get(b"v", b"")
        require_readable(f"the record of {call_id}", _int(version), READABLE_ENVELOPES)

        def text(name: str) -> str:
            return fields.get(name.encode(), b"").decode()

        outcome = fields.get(b"outcome")
        return cls(
            call_id=call_id,
            state=State(text("state")),
            token=text("token"),
            flavor=text("flavor"),
            kind=CallKind(text("kind")),
            function=text("function"),
            python=text("python"),
            imports=tuple(json.loads(fields.get(b"imports", b"[]"))),
            needs=tuple(json.loads(fields.get(b"needs", b"[]"))),
            choice=Choice.from_json(json.loads(fields.get(b"choice", b"{}"))),
            options=json.loads(fields.get(b"options", b"{}")),
            exposed=text("exposed") == "1",
            waited=text("waited") == "1",
            owner=text("owner"),
            attempt=_int(fields.get(b"attempt", b"0")),
            created_ms=_int(fields.get(b"created_ms", b"0")),
            taken_ms=_int(fields.get(b"taken_ms", b"0")),
            started_ms=_int(fields.get(b"started_ms", b"0")),
            finished_ms=_int(fields.get(b"finished_ms", b"0")),
            cancel=text("cancel"),
            payload=fields.get(b"payload", b""),
            payload_blob=text("payload_blob"),
            outcome=Outcome.from_json(json.loads(outcome)) if outcome else None,
            result=fields.get(b"result", b""),
            result_blob=text("result_blob"),
            reruns=_int(fields.get(b"reruns", b"0")),
            session=text("session"),
            sealed=text("sealed"),
            modules=tuple(json.loads(fields.get(b"modules", b"[]"))),
        )


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session, ``session:{id}``: calls that share one sandbox, one after another.

    ``options`` are those of the sandbox, for all its calls. ``worker`` is empty until the first call
    was taken. ``reason`` says why it has ended, which `ended` tells. Times as in `CallRecord`.
    """

    session_id: str
    token: str
    flavor: str
    options: Mapping[str, Any] = field(default_factory=dict)
    worker: str = ""
    current: str = ""  # the call that runs, or comes next
    waiting: int = 0  # calls behind it
    served: int = 0
    opened_ms: int = 0
    used_ms: int = 0
    ended_ms: int = 0
    reason: str = ""

    @property
    def ended(self) -> bool:
        return self.ended_ms > 0

    def new_fields(self) -> dict[str, str]:
        """The fields a gateway writes when it opens the session; the scripts add the others."""
        return {
            "v": str(ENVELOPE_VERSION),
            "token": self.token,
            "flavor": self.flavor,
            "options": _dump(self.options),
        }

    @classmethod
    def from_fields(cls, session_id: str, fields: Mapping[bytes, bytes], waiting: int) -> Self:
        """Read a hash as redis gives it. Raises `UnsupportedVersionError`, `ValueError`."""
        version = _int(fields.get(b"v", b""))
        require_readable(f"the record of {session_id}", version, READABLE_ENVELOPES)

        def text(name: str) -> str:
            return fields.get(name.encode(), b"").decode()

        return cls(
            session_id=session_id,
            token=text("token"),
            flavor=text("flavor"),
            options=json.loads(fields.get(b"options", b"{}")),
            worker=text("worker"),
            current=text("current"),
            waiting=waiting,
            served=_int(fields.get(b"served", b"0")),
            opened_ms=_int(fields.get(b"opened_ms", b"0")),
            used_ms=_int(fields.get(b"used_ms", b"0")),
            ended_ms=_int(fields.get(b"ended_ms", b"0")),
            reason=text("reason"),
        )


@dataclass(frozen=True, slots=True)
class GenerationFacts:
    """A generation that a worker can restore, as it advertises it. ``checkpoints`` are ids.

    The gateway joins it to a catalogue by ``catalogue_sha256``.
    """

    generation: str
    catalogue_sha256: str
    checkpoints: Sequence[str]
    python: str
    runtime: str
    startup_cold_s: float = 0.0
    startup_restore_s: float = 0.0
    startup_per_mb_s: float = 0.0
    import_factor: float = 1.0
    import_environment: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "catalogue_sha256": self.catalogue_sha256,
            "checkpoints": list(self.checkpoints),
            "python": self.python,
            "runtime": self.runtime,
            "startup_cold_s": self.startup_cold_s,
            "startup_restore_s": self.startup_restore_s,
            "startup_per_mb_s": self.startup_per_mb_s,
            "import_factor": self.import_factor,
            "import_environment": {k: list(v) for k, v in self.import_environment.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            generation=str(value["generation"]),
            catalogue_sha256=str(value["catalogue_sha256"]),
            checkpoints=tuple(value.get("checkpoints", ())),
            python=str(value.get("python", "")),
            runtime=str(value.get("runtime", "")),
            startup_cold_s=float(value.get("startup_cold_s", 0.0)),
            startup_restore_s=float(value.get("startup_restore_s", 0.0)),
            startup_per_mb_s=float(value.get("startup_per_mb_s", 0.0)),
            import_factor=float(value.get("import_factor", 1.0)),
            import_environment=dict(value.get("import_environment", {})),
        )


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker's advertisement, ``worker:{boot}``, rewritten by each beat. Memory in bytes.

    ``pid`` is its process on ``host``.
    """

    boot: str
    flavor: str
    runtime: str
    isolation: str
    python: str
    protocol: int
    slots: int
    free_slots: int
    memory_total: int
    memory_free: int
    version: str = ""
    host: str = ""
    pid: int = 0
    generations: Sequence[GenerationFacts] = ()
    pool: Mapping[str, int] = field(default_factory=dict)  # checkpoint key → sandboxes ready
    distributions: Mapping[str, str] = field(default_factory=dict)
    gpu_total: int = 0
    draining: bool = False
    error: str = ""
    notes: Sequence[str] = ()
    holding: Holding = field(default_factory=Holding)

    def to_fields(self) -> dict[str, str]:
        record = self.to_json()
        # By itself: it is long, seldom changes, and is read from every worker each second.
        holding = record.pop("holding")
        return {
            "v": str(ENVELOPE_VERSION),
            "record": _dump(record),
            "holding": _dump(holding),
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "boot": self.boot,
            "flavor": self.flavor,
            "runtime": self.runtime,
            "isolation": self.isolation,
            "python": self.python,
            "protocol": self.protocol,
            "slots": self.slots,
            "free_slots": self.free_slots,
            "memory_total": self.memory_total,
            "memory_free": self.memory_free,
            "version": self.version,
            "host": self.host,
            "pid": self.pid,
            "generations": [facts.to_json() for facts in self.generations],
            "pool": dict(self.pool),
            "distributions": dict(self.distributions),
            "gpu_total": self.gpu_total,
            "draining": self.draining,
            "error": self.error,
            "notes": list(self.notes),
            "holding": self.holding.to_json(),
        }

    @classmethod
    def from_fields(cls, fields: Mapping[bytes, bytes]) -> Self:
        require_readable("a worker record", _int(fields.get(b"v", b"")), READABLE_ENVELOPES)
        value = json.loads(fields[b"record"])
        known = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        known["generations"] = tuple(
            GenerationFacts.from_json(facts) for facts in value.get("generations", ())
        )
        known["notes"] = tuple(value.get("notes", ()))
        known["holding"] = _read_holding(fields.get(b"holding", b"{}"))
        return cls(**known)


@lru_cache(maxsize=256)  # of so many workers; what others hold is read anew each time
def _read_holding(data: bytes) -> Holding:
    return Holding.from_json(json.loads(data))


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def _int(value: bytes) -> int:
    return int(value) if value.isdigit() else 0
