"""A streamed answer: everything that happens to a call, as it happens, until its end or the window's."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.types import Receive, Send

from readie_gateway.connections import ClientConnection, ClientGoneError
from readie_gateway.errors import RefusedError
from readie_gateway.following import follow, is_over
from readie_gateway.responses.frames import Frames
from readie_gateway.responses.representation import Representation
from readie_gateway.responses.sse import ServerSentEvents
from readie_gateway.results import outcome_of, read_result
from readie_gateway.services import Services
from readie_gateway.waiting import Watch
from readie_infra.errors import BlobUnavailableError, StoreUnavailableError
from readie_infra.store import Snapshot, StoredEvent
from readie_wire.http import MEDIA_FRAMES, MEDIA_SSE
from readie_wire.records import CallRecord

log = logging.getLogger(__name__)

REPRESENTATIONS: Mapping[str, Representation] = {
    MEDIA_SSE: ServerSentEvents(),
    MEDIA_FRAMES: Frames(),
}
KEEP_ALIVE_S = 15.0  # proxies close connections that are silent for 30 to 60 s
# A warm call ends sooner than this: its acceptance then leaves with its end, as one packet.
HOLD_S = 0.02
PIECE_BYTES = 64 << 10  # small frames are joined to this, large ones leave as they are
SEND_S = 60.0  # a client that takes nothing for this long is gone


async def stream_call(
    services: Services,
    watch: Watch,
    representation: Representation,
    receive: Receive,
    send: Send,
    *,
    after: int,
    window_s: float,
    opening: StoredEvent | None = None,
    first: Snapshot | None = None,
    record: CallRecord | None = None,
) -> None:
    """Answer with the call's events after ``after``. ``opening`` is one that is known already.

    ``first`` and ``record``: see `follow`.

    Raises `ClientGoneError`. What fails once the answer has begun ends it as `pending`: the call
    goes on, and the client asks again.
    """
    answer = _Answer(representation, send)
    async with ClientConnection(receive) as client:
        if opening is not None:
            await answer.write(representation.events(watch.call_id, [opening]))
            if await watch.changed(HOLD_S):
                watch.ring()  # for who follows
            else:
                await answer.flush()
        snapshots = follow(
            *(services.store, watch, client),
            after=after,
            window_s=window_s,
            first=first,
            record=record,
        )
        try:
            await _relay(services, watch, answer, snapshots)
        except (StoreUnavailableError, BlobUnavailableError) as error:
            log.warning("the answer for %s breaks off: %s", watch.call_id, error)
            await answer.pending(watch.call_id, "unknown", "store_unavailable")
        except RefusedError:
            await answer.pending(watch.call_id, "unknown", "result_expired")
        await answer.finish()


async def send_outcome(
    services: Services, snapshot: Snapshot, representation: Representation, send: Send
) -> None:
    """Answer with the end of a call that is over, and nothing of what came before it.

    Raises `ResultExpiredError` and `BlobUnavailableError`, before anything is sent.
    """
    answer = _Answer(representation, send)
    result = await read_result(services, snapshot.record)
    await answer.end(snapshot, result)
    await answer.finish()


async def _relay(
    services: Services, watch: Watch, answer: "_Answer", snapshots: AsyncGenerator[Snapshot]
) -> None:
    async with aclosing(snapshots):
        async for snapshot in snapshots:
            if snapshot.events:
                record = snapshot.record
                await answer.write(answer.representation.events(record.call_id, snapshot.events))
            if not is_over(snapshot):  # its end follows, and goes with it
                await answer.flush()
                await answer.keep_alive()
    record = snapshot.record  # of the last one: there is at least one, or an error
    if not is_over(snapshot):
        reason = "shutdown" if watch.closing else "window"
        await answer.pending(record.call_id, record.state, reason)
        return
    await answer.end(snapshot, await read_result(services, record))


class _Answer:
    """The response being sent. What is written leaves with `flush`, in one piece with a deadline."""

    def __init__(self, representation: Representation, send: Send) -> None:
        self.representation = representation
        self._send = send
        self._pieces: list[bytes] = []
        self._size = 0
        self._begun = False
        self._clock = asyncio.get_running_loop().time
        self._sent_at = self._clock()

    async def write(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= PIECE_BYTES:
            await self.flush()

    async def flush(self, *, more: bool = True) -> None:
        body, self._pieces, self._size = b"".join(self._pieces), [], 0
        if not body and more and self._begun:
            return
        try:
            async with asyncio.timeout(SEND_S):
                if not self._begun:
                    self._begun = True
                    await self._begin()
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError as error:
            raise ClientGoneError from error
        self._sent_at = self._clock()

    async def end(self, snapshot: Snapshot, result: bytes) -> None:
        record = snapshot.record
        seq = snapshot.events[-1].seq if snapshot.events else 0
        for piece in self.representation.outcome(record, outcome_of(record), result, seq):
            await self.write(piece)

    async def pending(self, call_id: str, state: str, reason: str) -> None:
        await self.write(self.representation.pending(call_id, state, reason))

    async def keep_alive(self) -> None:
        if self._clock() - self._sent_at >= KEEP_ALIVE_S:
            await self.write(self.representation.keep_alive)
            await self.flush()

    async def finish(self) -> None:
        await self.flush(more=False)

    async def _begin(self) -> None:
        headers = [
            (b"content-type", self.representation.media_type.encode("ascii")),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),  # tells nginx to pass each event on at once
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
