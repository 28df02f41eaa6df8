"""What goes into the call store and comes out of it, beside the records of ``readie_wire``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from readie_wire.records import CallRecord

DEFAULT_SESSION_IDLE_S = 300.0

EventType = Literal["accepted", "log", "item", "result"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Times (seconds) that the store keeps by the server's clock. Tests use short ones."""

    lease_s: float = 60.0  # taken → started; longer than any cold start
    lost_grace_s: float = 30.0  # past its timeout a started call is lost: the worker had this long
    cancel_grace_s: float = 15.0  # to end a running call; then it counts as cancelled
    silence_s: float = 15.0  # without a beat (each 3 s) a worker counts as dead
    settle_s: float = (
        15.0  # after an outage, until what workers hold may be over: they beat by then
    )
    spill_s: float = (
        0.25  # in the queue: a free worker of the call's own flavor would have it by then
    )
    skipped_s: float = 5.0  # in the queue, until a worker makes room for a call that does not fit
    kept_s: float = 30.0  # that it does so at most; what it waits for may run for hours
    sessions: int = 10_000  # open at a time; a leave looks at each of them
    session_line: int = 100  # calls that may wait in one session
    max_leases: int = 5  # times a call may be taken and its lease lapse before it is lost


@dataclass(frozen=True, slots=True)
class Enqueued:
    """``created`` is false when the idempotency key already stood for ``call_id``."""

    call_id: str
    created: bool


@dataclass(frozen=True, slots=True)
class Offer:
    """What a worker can run now. ``worker`` is its boot id, memory in bytes.

    ``ready`` are the checkpoint keys (``Choice.key``) of sandboxes that wait for a call: one of
    those is started with the take. ``exposed_ok``: its sandboxes hold calls from anywhere. A session
    that begins here ends after ``session_idle_s`` seconds without a call. ``memory`` is all that the
    worker has for calls: one that is skipped for long gets it freed, 0 for none. ``spills_from`` is
    another flavor whose calls it takes when their own workers do not.
    """

    worker: str
    flavor: str
    slots: int
    memory_free: int
    ready: Sequence[str] = ()
    exposed_ok: bool = False
    draining: bool = False
    session_idle_s: float = DEFAULT_SESSION_IDLE_S
    memory: int = 0
    spills_from: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """A call that a worker has, and for how many seconds more it may run."""

    call_id: str
    attempt: int
    remaining_s: float


@dataclass(frozen=True, slots=True)
class Unwanted:
    """What a worker holds in vain: calls to be ended, sessions that are over or elsewhere."""

    calls: Sequence[str] = ()
    sessions: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One event to append; ``data`` is a JSON object without ``seq``."""

    type: EventType
    data: bytes


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event with its place: ``seq`` counts from 1 without gaps within a call."""

    seq: int
    type: EventType
    data: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A call at one instant: its record without payload, and the events after a given ``seq``.

    ``more``: there are further events; read again after the last one.
    """

    record: CallRecord
    events: Sequence[StoredEvent]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a call as its doorbell tells it, for `snapshot_at_end`. ``seq`` is its event's."""

    seq: int
    fields: Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a worker has read its orders and its flavor's bell. Starts at the beginning."""

    control: str = "0-0"
    bell: str = "0-0"


@dataclass(frozen=True, slots=True)
class Order:
    """Something a worker is told to do.

    ``cancel`` the call; take the next call of the ``session``; ``close`` the session's sandbox.
    """

    type: str
    call_id: str = ""
    reason: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class Wakeup:
    """Why a waiting worker woke: orders, the bell, or (neither) because its time was over.

    ``bells`` is how often the bell rang since the last wait; more than a few are not counted.
    """

    orders: Sequence[Order]
    bells: int
    cursor: Cursor

    @property
    def rang(self) -> bool:
        return self.bells > 0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A parked call: why, and the last of what it printed. Times as in `CallRecord`."""

    call_id: str
    token: str
    flavor: str
    function: str
    attempts: int
    reason: str
    last_words: str
    parked_ms: int


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did, as call ids. ``rebuilt`` had lost their queue entry; ``sessions`` are ids
    of those that were idle too long."""

    expired: Sequence[str] = ()
    lost: Sequence[str] = ()
    cancelled: Sequence[str] = ()
    requeued: Sequence[str] = ()
    rebuilt: Sequence[str] = ()
    sessions: Sequence[str] = ()

    @property
    def ended(self) -> list[str]:
        return [*self.expired, *self.lost, *self.cancelled]


@dataclass(frozen=True, slots=True)
class Health:
    """The server as it is now. ``warnings`` say what would break a promise, in words."""

    server: str  # such as "valkey 9.1.0"
    memory_used: int
    memory_limit: int  # 0: none
    eviction: str
    warnings: Sequence[str] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        return {
            "server": self.server,
            "memory_used": self.memory_used,
            "memory_limit": self.memory_limit,
            "eviction": self.eviction,
            "warnings": list(self.warnings),
        }
