"""Server-sent events: ``accepted``, ``log``, ``item``, ``result``; ``pending`` where it breaks off.

``id`` is the event's ``seq``, so a browser that reconnects with ``Last-Event-ID`` misses nothing.
"""

from collections.abc import Iterable, Sequence

from readie_gateway.documents import event_document, outcome_document, pending_document
from readie_gateway.json_text import dump
from readie_infra.store import StoredEvent
from readie_wire.http import MEDIA_SSE
from readie_wire.outcome import Outcome
from readie_wire.records import CallRecord


class ServerSentEvents:
    """The `Representation` for browsers and for people with curl."""

    media_type = f"{MEDIA_SSE}; charset=utf-8"
    keep_alive = b": still running\n\n"

    def events(self, call_id: str, events: Sequence[StoredEvent]) -> bytes:
        return b"".join(
            _event(event.type, dump(event_document(event)), event.seq)
            for event in events
            if event.type != "result"
        )

    def outcome(
        self, record: CallRecord, outcome: Outcome, result: bytes, seq: int
    ) -> Iterable[bytes]:
        # Its logs have gone out as events of their own.
        yield _event("result", outcome_document(record, outcome, result, logs=[]), seq)

    def pending(self, call_id: str, state: str, reason: str) -> bytes:
        return _event("pending", dump(pending_document(call_id, state, reason)))


def _event(name: str, data: bytes, seq: int | None = None) -> bytes:
    # JSON has no raw line breaks, except between tokens of a result that a sandbox wrote.
    lines = b"\ndata: ".join(data.splitlines())
    identity = b"" if seq is None else b"id: %d\n" % seq
    return b"event: %b\n%bdata: %b\n\n" % (name.encode("ascii"), identity, lines)
