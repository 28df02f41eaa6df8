"""What a streamed kind of answer is made of. `sse` and `frames` are the two there are."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from readie_infra.store import StoredEvent
from readie_wire.outcome import Outcome
from readie_wire.records import CallRecord


class Representation(Protocol):
    """Turns what happens to one call into bytes, in order; the end or `pending` is the last."""

    @property
    def media_type(self) -> str: ...

    @property
    def keep_alive(self) -> bytes:
        """Bytes that mean nothing, to show proxies that the answer is still alive."""
        ...

    def events(self, call_id: str, events: Sequence[StoredEvent]) -> bytes:
        """Events but the last one, which `outcome` stands for."""
        ...

    def outcome(
        self, record: CallRecord, outcome: Outcome, result: bytes, seq: int
    ) -> Iterable[bytes]:
        """How the call ended; ``seq`` is the place of that event."""
        ...

    def pending(self, call_id: str, state: str, reason: str) -> bytes:
        """The answer ends and the call goes on; ``reason`` is ``window``, ``shutdown`` …"""
        ...
