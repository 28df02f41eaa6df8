"""``application/vnd.readie.frames``: what the SDK reads, results as raw bytes."""

from collections.abc import Iterable, Sequence

from readie_gateway.documents import event_document
from readie_infra.store import StoredEvent
from readie_wire.framing import FrameType, encode_header, encode_message
from readie_wire.http import MEDIA_FRAMES
from readie_wire.outcome import Outcome
from readie_wire.records import CallRecord

_TYPES = {"accepted": FrameType.ACCEPTED, "log": FrameType.LOG}


class Frames:
    """ACCEPTED and LOG as they come, then RESULT or ERROR with its body, or BYE; PING between."""

    media_type = MEDIA_FRAMES
    keep_alive = encode_header(FrameType.PING)

    def events(self, call_id: str, events: Sequence[StoredEvent]) -> bytes:
        return b"".join(
            encode_header(_TYPES[event.type], event_document(event))
            for event in events
            if event.type in _TYPES
        )

    def outcome(
        self, record: CallRecord, outcome: Outcome, result: bytes, seq: int
    ) -> Iterable[bytes]:
        header = {"call_id": record.call_id, "seq": seq, "outcome": outcome.to_json()}
        yield from encode_message(
            FrameType.RESULT if outcome.ok else FrameType.ERROR, header, result
        )

    def pending(self, call_id: str, state: str, reason: str) -> bytes:
        return encode_header(FrameType.BYE, {"call_id": call_id, "state": state, "reason": reason})
