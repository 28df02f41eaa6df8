"""From fields to records: what every reader of calls shares."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from readie_infra.store.values import Ending, Event, Snapshot, StoredEvent
from readie_wire.lifecycle import State
from readie_wire.outcome import Outcome
from readie_wire.records import CallRecord

# What a reader asks for: everything but the payload, which only the worker needs.
READ_FIELDS = (
    *("v", "state", "token", "flavor", "kind", "function", "python", "imports", "needs"),
    *("choice", "options", "exposed", "waited", "owner", "attempt", "created_ms", "taken_ms"),
    *("started_ms", "finished_ms", "cancel", "payload_blob", "outcome", "result", "result_blob"),
    *("queue_us", "total_us", "session"),
)
LIST_FIELDS = tuple(name for name in READ_FIELDS if name != "result")


def pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """A hash as Lua hands it on: names and values by turns."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def named(fields: Sequence[str], values: Sequence[bytes | None]) -> dict[bytes, bytes]:
    return {
        name.encode(): value
        for name, value in zip(fields, values, strict=True)
        if value is not None
    }


def read_record(call_id: str, fields: Mapping[bytes, bytes]) -> CallRecord:
    """The record, its receipt completed with what only the store knows.

    Raises `UnsupportedVersionError` and `ValueError` for a record this build does not read.
    """
    record = CallRecord.from_fields(call_id, fields)
    if record.outcome is None:
        return record
    return replace(record, outcome=_completed(record, record.outcome, fields))


def snapshot_at_end(record: CallRecord, ending: Ending) -> Snapshot:
    """What `CallStore.read` gives of the call after the event before its last, without asking.

    ``record`` is the call as it was at any time. Its times are left as they were.
    """
    fields = ending.fields
    record = replace(
        record,
        state=State(fields[b"state"].decode()),
        owner=fields[b"owner"].decode(),
        attempt=int(fields[b"attempt"]),
        result=fields[b"result"],
    )
    outcome = Outcome.from_json(json.loads(fields[b"outcome"]))
    record = replace(record, outcome=_completed(record, outcome, fields))
    event = StoredEvent(ending.seq, "result", compact({"state": record.state}).encode())
    return Snapshot(record, [event])


def _completed(record: CallRecord, outcome: Outcome, fields: Mapping[bytes, bytes]) -> Outcome:
    receipt = replace(
        outcome.receipt,
        call_id=record.call_id,
        attempt=record.attempt,
        worker_id=outcome.receipt.worker_id or record.owner or None,
        queue_ms=_milliseconds(fields, b"queue_us"),
        total_ms=_milliseconds(fields, b"total_us"),
    )
    return replace(outcome, receipt=receipt)


def outcome_text(outcome: Outcome) -> str:
    return compact(outcome.to_json())


def compact(value: Any) -> str:
    # Escaped, because text from user code may hold lone surrogates, which UTF-8 does not know.
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def flattened(events: Sequence[Event]) -> list[str | bytes]:
    words: list[str | bytes] = []
    for event in events:
        words += (event.type, event.data)
    return words


def _milliseconds(fields: Mapping[bytes, bytes], name: bytes) -> float:
    return int(fields.get(name, b"0")) / 1000
