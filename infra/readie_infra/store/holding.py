"""The worker's side of a call's life: take, start, renew, release, retry, emit, finish.

Each step compares owner, attempt and state before it writes. A worker that was stopped and resumed,
or whose lease lapsed, gets `False` and drops what it was doing.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence

from readie_infra.errors import StoreUnavailableError
from readie_infra.store import endings
from readie_infra.store.reading import flattened, outcome_text, pairs, read_record
from readie_infra.store.steps import Steps, milliseconds
from readie_infra.store.submitting import DEFAULT_RESULT_TTL_S
from readie_infra.store.values import Event, Hold, Limits, Offer, Unwanted
from readie_wire.lifecycle import State
from readie_wire.outcome import Outcome
from readie_wire.records import CallRecord

LONGEST_REASON = 2_000  # characters of why a call is parked
SANDBOX_GONE = "its sandbox is gone"  # why a session ends


class Holding:
    _steps: Steps
    _limits: Limits
    # Worker → the ticket of a take whose answer was lost on the way.
    _open_tickets: dict[str, str]

    async def take(self, offer: Offer) -> CallRecord | None:
        """The first queued call that fits the offer, now this worker's; `None` when there is none.

        ``record.state`` is ``running`` when the call's checkpoint is among ``offer.ready``, else
        ``leased``: `start` must follow within the lease. The record has the payload. One take at
        a time per worker. After `StoreUnavailableError` just take again: a call that was given
        but never arrived comes first.
        """
        if offer.draining or offer.slots < 1:
            return None
        times = milliseconds(self._limits.lease_s), milliseconds(self._limits.lost_grace_s)
        return await self._taken(
            offer.worker,
            lambda ticket: self._steps.run(
                "take",
                offer.worker,
                offer.flavor,
                offer.memory_free,
                "1" if offer.exposed_ok else "0",
                *times,
                ticket,
                milliseconds(offer.session_idle_s),
                offer.memory,
                offer.spills_from,
                milliseconds(self._limits.spill_s),
                milliseconds(self._limits.skipped_s),
                milliseconds(self._limits.kept_s),
                *offer.ready,
            ),
        )

    async def take_session(self, worker: str, session: str, *, ready: bool) -> CallRecord | None:
        """The next call of a session whose sandbox is this worker's; `None` when it is not its turn.

        ``ready``: the sandbox waits for it, so it is ``running`` with the take. Counts as a take:
        one at a time per worker, and what a lost answer had given comes first.
        """
        times = milliseconds(self._limits.lease_s), milliseconds(self._limits.lost_grace_s)
        return await self._taken(
            worker,
            lambda ticket: self._steps.run(
                "take_session",
                worker,
                session,
                "1" if ready else "0",
                *times,
                ticket,
                SANDBOX_GONE,
                outcome_text(endings.session_ended(SANDBOX_GONE)),
                milliseconds(DEFAULT_RESULT_TTL_S),
            ),
        )

    async def _taken(
        self, worker: str, step: Callable[[str], Awaitable[tuple[bytes, list[bytes]] | None]]
    ) -> CallRecord | None:
        while True:
            ticket = self._open_tickets.pop(worker, None) or secrets.token_hex(8)
            try:
                found = await step(ticket)
            except StoreUnavailableError:
                self._open_tickets[worker] = ticket
                raise
            if not found:
                return None
            call_id, fields = found[0].decode(), pairs(found[1])
            try:
                return read_record(call_id, fields)
            except (ValueError, KeyError, TypeError) as error:
                outcome = endings.unreadable(str(error))
                attempt = int(fields[b"attempt"])
                await self.finish(call_id, worker, attempt, State.DEAD, outcome)

    async def start(self, call_id: str, owner: str, attempt: int, timeout_s: float) -> bool:
        """The fence before GO. `False`: the call is no longer this worker's; do not run it."""
        return await self._step(
            "start",
            *(call_id, owner, attempt),
            milliseconds(timeout_s),
            milliseconds(self._limits.lost_grace_s),
        )

    async def renew(self, worker: str, calls: Sequence[Hold], sessions: Sequence[str]) -> Unwanted:
        """Say what this worker holds: its running calls are not given up meanwhile.

        Answers what it is to let go of, whose order it may not have got.
        """
        words: list[str | int] = []
        for call in calls:
            words += (call.call_id, call.attempt, milliseconds(call.remaining_s))
        grace = milliseconds(self._limits.lost_grace_s)
        ended, closed = await self._steps.run("renew", worker, grace, len(calls), *words, *sessions)
        return Unwanted([call.decode() for call in ended], [name.decode() for name in closed])

    async def release(self, call_id: str, owner: str, attempt: int, reason: str) -> bool:
        """Hand back a call that was taken but not started; it is queued first of its token."""
        return await self._step("release", call_id, owner, attempt, reason)

    async def retry(
        self, call_id: str, owner: str, attempt: int, logs: Sequence[Event] = ()
    ) -> bool:
        """The run came to nothing: queue the call again, first of its token, for one of its reruns.

        ``logs`` are the last of this run. `False`: it has no rerun left, or somebody wants it to
        end, or it is no longer this worker's; `finish` it then, which finds out.
        """
        return await self._step("retry", call_id, owner, attempt, *flattened(logs))

    async def emit(self, call_id: str, owner: str, attempt: int, events: Sequence[Event]) -> bool:
        """Append events and ring the gateways that wait.

        `False`: stop working on the call; it is no longer this worker's, or to be cancelled.
        """
        batch = secrets.token_hex(8)
        return await self._step("emit", call_id, owner, attempt, batch, *flattened(events))

    async def finish(
        self,
        call_id: str,
        owner: str,
        attempt: int,
        state: State,
        outcome: Outcome,
        result: bytes = b"",
        result_blob: str = "",
        result_ttl: float = DEFAULT_RESULT_TTL_S,
        logs: Sequence[Event] = (),
        session_over: str = "",
    ) -> bool:
        """Store the end of a call: ``succeeded`` after start, ``failed`` or ``cancelled`` any time.

        ``dead`` parks it: its caller is told as of a failure, and it is kept to be looked at.

        ``result`` are the result's bytes (or the pickled exception's), unless ``result_blob``
        names them. ``logs`` precede the result event. From now on the call lives ``result_ttl``
        seconds. ``session_over`` is why the call's session ends with it, if it does. `False`:
        somebody else ended it. Repeating the same end is `True`.
        """
        return await self._step(
            "finish",
            *(call_id, owner, attempt),
            *(str(state), outcome_text(outcome), result, result_blob, milliseconds(result_ttl)),
            session_over,
            outcome_text(endings.session_ended(session_over)) if session_over else "",
            outcome.error.message[:LONGEST_REASON]
            if state is State.DEAD and outcome.error is not None
            else "",
            *flattened(logs),
        )

    async def _step(self, name: str, *arguments: str | bytes | int) -> bool:
        return bool(await self._steps.run(name, *arguments))
