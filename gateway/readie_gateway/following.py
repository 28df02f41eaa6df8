"""What becomes of one call, as its client is to hear it: snapshots until the end or the window's."""

import asyncio
from collections.abc import AsyncGenerator

from readie_gateway.connections import ClientConnection, ClientGoneError
from readie_gateway.errors import ResultExpiredError
from readie_gateway.waiting import Watch
from readie_infra.store import CallStore, Snapshot, snapshot_at_end
from readie_wire.lifecycle import TERMINAL
from readie_wire.records import CallRecord

# Calls that end sooner never pay for a task that looks whether their client is still there.
LISTEN_AFTER_S = 0.25
PAUSE_S = 5.0  # the longest silence between two snapshots, so that streams can be kept alive


def is_over(snapshot: Snapshot) -> bool:
    """The call has ended and all its events are read."""
    return snapshot.record.state in TERMINAL and not snapshot.more


async def follow(
    store: CallStore,
    watch: Watch,
    client: ClientConnection,
    *,
    after: int,
    window_s: float,
    first: Snapshot | None = None,
    record: CallRecord | None = None,
) -> AsyncGenerator[Snapshot]:
    """Snapshots with the events after ``after``, as they come; the last one `is_over`, or not.

    ``first`` is what has been read already; without it the call was enqueued just now, as ``record``
    if that is known, and nothing is read before its first doorbell. ``window_s`` is when to give up. Raises `ClientGoneError`,
    `CallVanishedError`, `StoreUnavailableError`.
    """
    clock = asyncio.get_running_loop().time
    began = clock()
    snapshot = first
    while True:
        if snapshot is not None:
            if snapshot.events:
                after = snapshot.events[-1].seq
            yield snapshot
            if is_over(snapshot):
                return
        if snapshot is None or not snapshot.more:
            remaining = began + window_s - clock()
            if snapshot is not None and (remaining <= 0 or watch.closing):
                return
            await watch.changed(min(PAUSE_S if client.listening else LISTEN_AFTER_S, remaining))
            if clock() - began >= LISTEN_AFTER_S:
                client.listen(watch.ring)
        if client.gone:
            raise ClientGoneError
        record = snapshot.record if snapshot is not None else record
        if record is not None and (end := watch.ending) is not None and end.seq == after + 1:
            snapshot = snapshot_at_end(record, end)  # all that a read would tell
            continue
        snapshot = await store.read(watch.call_id, after)
        if snapshot is None:
            raise ResultExpiredError(f"the record of {watch.call_id} is gone")
