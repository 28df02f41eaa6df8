"""The JSON objects that describe a call: its acceptance, its state, its end."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from readie_gateway.json_text import dump, is_json
from readie_infra.store import StoredEvent
from readie_wire.http import API_PREFIX
from readie_wire.outcome import Encoding, Outcome
from readie_wire.records import CallRecord, SessionRecord


def call_location(call_id: str) -> str:
    """Where a call can be asked for."""
    return f"{API_PREFIX}/calls/{call_id}"


def pending_document(call_id: str, state: str, reason: str = "") -> dict[str, Any]:
    """A call that has not ended, and where to go on waiting for it."""
    location = call_location(call_id)
    return {
        "call_id": call_id,
        "state": state,
        "reason": reason or None,
        "location": location,
        "result": f"{location}/result",
        "events": f"{location}/events",
    }


def outcome_document(
    record: CallRecord, outcome: Outcome, result: bytes, logs: Sequence[Mapping[str, Any]]
) -> bytes:
    """How a call ended, as JSON bytes.

    ``value`` is the result itself where it is JSON: its bytes are put in as they are, so that
    nothing is parsed and rounded. Anything else stands in ``value_base64``.
    """
    head: dict[str, Any] = {"call_id": record.call_id, "ok": outcome.ok, "state": record.state}
    tail = {
        "error": outcome.error.to_json() if outcome.error else None,
        "logs": logs,
        "receipt": outcome.receipt.to_json(),
    }
    if not outcome.ok:
        return dump(head | tail)
    head["encoding"] = outcome.encoding
    if outcome.encoding is Encoding.JSON and is_json(result):
        return b'%b,"value":%b,%b' % (dump(head)[:-1], result, dump(tail)[1:])
    return dump(head | {"value_base64": base64.b64encode(result).decode("ascii")} | tail)


def session_location(session_id: str) -> str:
    return f"{API_PREFIX}/sessions/{session_id}"


def session_document(record: SessionRecord) -> dict[str, Any]:
    """A session as it is now."""
    return {
        "session_id": record.session_id,
        "state": "ended" if record.ended else "open",
        "reason": record.reason or None,
        "flavor": record.flavor,
        "options": record.options,
        "worker_id": record.worker or None,
        "running": record.current or None,
        "waiting": record.waiting,
        "served": record.served,
        "opened_ms": record.opened_ms or None,
        "used_ms": record.used_ms or None,
        "ended_ms": record.ended_ms or None,
    }


def call_document(record: CallRecord) -> dict[str, Any]:
    """A call as it is now, without its result."""
    outcome = record.outcome
    return {
        "call_id": record.call_id,
        "state": record.state,
        "function": record.function,
        "kind": record.kind,
        "flavor": record.flavor,
        "choice": record.choice.to_json(),
        "options": record.options,
        "session": record.session or None,
        "waited": record.waited,
        "cancel": record.cancel or None,
        "attempt": record.attempt,
        "worker_id": record.owner or None,
        "created_ms": record.created_ms,
        "taken_ms": record.taken_ms or None,
        "started_ms": record.started_ms or None,
        "finished_ms": record.finished_ms or None,
        "ok": outcome.ok if outcome else None,
        "error": outcome.error.to_json() if outcome and outcome.error else None,
        "receipt": outcome.receipt.to_json() if outcome else None,
    }


def event_document(event: StoredEvent) -> dict[str, Any]:
    """An event of a call with its ``seq``, as clients see it."""
    value: dict[str, Any] = json.loads(event.data)
    return {**value, "seq": event.seq}
