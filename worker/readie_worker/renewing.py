"""Tells the store now and then what this worker holds, and lets go of what is its no longer.

Orders can be lost: with the server's data, with a stream that somebody deleted, or because the fleet
took this worker for dead while it could not be heard. Without this a call that nobody waits for would
keep its slot until its timeout, and the sandbox of a session that is over its memory for ever.
"""

import asyncio

import structlog

from readie_infra.errors import StoreUnavailableError
from readie_infra.store import CallStore, Hold
from readie_worker.errors import StopKind
from readie_worker.runner import Runner
from readie_worker.sessions import Sessions

log = structlog.stdlib.get_logger(__name__)


async def renew_holds(
    store: CallStore, runner: Runner, sessions: Sessions, *, boot: str, every: float
) -> None:
    """Each ``every`` seconds, for ever. While the store cannot be had, nothing is let go."""
    while True:
        await asyncio.sleep(every)
        held = [
            Hold(call.record.call_id, call.record.attempt, call.remaining_s)
            for call in runner.calls
        ]
        if not held and not len(sessions):
            continue
        try:
            unwanted = await store.renew(boot, held, sessions.ids)
        except StoreUnavailableError:
            continue  # the consumer tells of an outage
        ended = {(hold.call_id, hold.attempt) for hold in held if hold.call_id in unwanted.calls}
        for call in runner.calls:
            if (call.record.call_id, call.record.attempt) in ended:
                call.stop(StopKind.CANCELLED)
        for session in unwanted.sessions:
            log.info("a session is over, though nobody said so", session=session)
            sessions.close(session)
