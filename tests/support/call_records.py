"""Calls as the tests of the store, the gateway and the worker need them."""

import math
from typing import Any

from readie_infra.store import CallStore, Offer
from readie_wire.envelope import CallKind
from readie_wire.keys import Keys, new_call_id
from readie_wire.lifecycle import State
from readie_wire.outcome import Encoding, ErrorInfo, ErrorKind, Outcome, Receipt
from readie_wire.records import CallRecord, Choice
from support.redis_servers import RedisServer

MEMORY = 1 << 30
OPTIONS = {"timeout": 60.0, "memory": MEMORY}
CHOICE = Choice(generation="20260101t000000-0a1b2c3d", checkpoint="checkpoint_1")
CHECKPOINT_KEY = "20260101t000000-0a1b2c3d/checkpoint_1"

SUCCESS = Outcome(ok=True, receipt=Receipt(call_id=""), encoding=Encoding.JSON, size=1)
FAILURE = Outcome(
    ok=False,
    receipt=Receipt(call_id=""),
    error=ErrorInfo(kind=ErrorKind.EXCEPTION, type="ValueError", message="no"),
)


def new_record(**changes: Any) -> CallRecord:
    """A queued call of token ``default`` on ``cpu``, with an id of its own."""
    fields: dict[str, Any] = {
        "call_id": new_call_id(),
        "state": State.QUEUED,
        "token": "default",
        "flavor": "cpu",
        "kind": CallKind.PICKLE,
        "function": "work.py::fn",
        "python": "3.11",
        "options": OPTIONS,
        "choice": CHOICE,
        "payload": b"payload",
    }
    return CallRecord(**{**fields, **changes})


async def enqueue(store: CallStore, record: CallRecord | None = None, **changes: Any) -> CallRecord:
    """Put a call into the store as a gateway does; answers its record."""
    record = record or new_record()
    arguments: dict[str, Any] = {
        "idempotency": None,
        "queue_timeout": 30.0,
        "gateway": None,
        "queue_limit": 1_000,
    }
    assert (await store.enqueue(record, **{**arguments, **changes})).created
    return record


def offer(**changes: Any) -> Offer:
    """A worker with room for anything."""
    fields: dict[str, Any] = {
        "worker": "worker-a",
        "flavor": "cpu",
        "slots": 1,
        "memory_free": 64 << 30,
        "exposed_ok": True,
    }
    return Offer(**{**fields, **changes})


async def take(store: CallStore, **changes: Any) -> CallRecord:
    """What a worker gets; fails the test when that is nothing."""
    record = await store.take(offer(**changes))
    assert record is not None
    return record


def due_between(server: RedisServer, first_ms: int, last_ms: float = math.inf) -> int:
    """How many calls' time is over then, by the server's clock, if nothing happens until then."""
    counted = server.command("ZCOUNT", Keys().due, str(first_ms), str(last_ms))
    return int(counted.removeprefix(":"))
