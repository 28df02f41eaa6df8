"""The answer as one JSON document: how the call ended, or 202 and where to ask again."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive

from readie_gateway.connections import ClientConnection
from readie_gateway.documents import (
    call_location,
    event_document,
    outcome_document,
    pending_document,
)
from readie_gateway.following import follow, is_over
from readie_gateway.json_text import dump
from readie_gateway.results import outcome_of, read_result, refuse_unserved
from readie_gateway.services import Services
from readie_gateway.waiting import Watch
from readie_infra.store import Snapshot, StoredEvent
from readie_wire.http import MEDIA_JSON
from readie_wire.records import CallRecord


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(dump(value), status, headers, media_type=MEDIA_JSON)


def pending_response(call_id: str, state: str, reason: str = "") -> Response:
    """202: the call has not ended."""
    headers = {"Location": call_location(call_id)}
    return json_response(pending_document(call_id, state, reason), 202, headers)


async def outcome_response(
    services: Services, record: CallRecord, events: Sequence[StoredEvent]
) -> Response:
    """How a call that is over ended. Raises what `refuse_unserved` does."""
    refuse_unserved(services.fleet.now, record)
    logs = [event_document(event) for event in events if event.type == "log"]
    result = await read_result(services, record)
    body = outcome_document(record, outcome_of(record), result, logs)
    return Response(body, media_type=MEDIA_JSON)


async def wait_for_end(
    services: Services,
    watch: Watch,
    receive: Receive,
    *,
    window_s: float,
    after: int = 0,
    first: Snapshot | None = None,
    record: CallRecord | None = None,
) -> Snapshot:
    """The call when it is over, or as it is when the window ends, with its events after ``after``.

    ``first`` and ``record``: see `follow`. Raises what `follow` raises.
    """
    events: list[StoredEvent] = []
    async with ClientConnection(receive) as client:
        snapshots = follow(
            *(services.store, watch, client),
            after=after,
            window_s=window_s,
            first=first,
            record=record,
        )
        async with aclosing(snapshots):
            async for snapshot in snapshots:
                events += snapshot.events
    # Of the last one: there is at least one, or an error.
    return Snapshot(snapshot.record, events, more=snapshot.more)


async def answer_in_json(services: Services, watch: Watch, snapshot: Snapshot) -> Response:
    """What `wait_for_end` gave, as a response."""
    if is_over(snapshot):
        return await outcome_response(services, snapshot.record, snapshot.events)
    reason = "shutdown" if watch.closing else "window"
    return pending_response(watch.call_id, snapshot.record.state, reason)
