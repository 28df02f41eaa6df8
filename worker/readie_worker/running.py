"""One call under way: what is known about it, and how it is stopped from outside."""

import asyncio
from dataclasses import replace

from readie_wire.lifecycle import State
from readie_wire.outcome import ErrorKind, Receipt, StartKind
from readie_wire.records import CallRecord
from readie_worker.capacity import Grant
from readie_worker.errors import Stop, StopKind, StoppedError
from readie_worker.options import CallOptions
from readie_worker.outcomes import Ending
from readie_worker.relaying import Relay
from readie_worker.sandbox.api import Limits
from readie_worker.selection import Start
from readie_worker.sessions import HeldSession
from readie_worker.starting import LiveSandbox

# Ends that kill the process: how a session tells that it ended with the call.
_FATAL = {
    ErrorKind.TIMEOUT: ", which ran longer than its timeout",
    ErrorKind.CANCELLED: ", which was cancelled while it ran",
    ErrorKind.OUT_OF_MEMORY: ", which ran out of memory",
}


class Running:
    """The state of one call on this worker, from its take to its end.

    ``fenced_in`` tells that the store already counts the call as running, so that GO may be sent;
    ``touched`` that its sandbox was given something of it; ``go_sent`` that GO was, so that the function
    may run; ``answered`` that its sandbox has given its end and lives on. ``session`` is what it is a call of.
    """

    def __init__(
        self,
        record: CallRecord,
        options: CallOptions,
        taken_at: float,
        grant: Grant,
        session: HeldSession | None = None,
    ) -> None:
        self.record = record
        self.grant = grant
        self.growing = True  # as far as is known, it can have more memory than the grant
        self.options = options
        self.taken_at = taken_at  # loop time
        self.fenced_in = record.state is State.RUNNING
        self.touched = False
        self.go_sent = False
        self.answered = False
        self.session = session
        self.stopped: Stop | None = None
        self.live: LiveSandbox | None = None
        self.relay: Relay | None = None
        self.fallback_reason: str | None = None
        self.planned = Start(None)
        self._timeout: asyncio.TimerHandle | None = None
        self._ends_at: float | None = None  # loop time; None before GO

    @property
    def limits(self) -> Limits:
        """Those that hold now: memory may have grown, and may be all that it gets."""
        return replace(self.options.limits, memory=self.grant.memory, growing=self.growing)

    def attach(self, live: LiveSandbox, relay: Relay) -> None:
        """From now on this sandbox runs the call, and its output is the call's."""
        self.live = live
        self.relay = relay
        live.pipes.on_output = relay.notice
        relay.notice()

    def stop(self, kind: StopKind, reason: str = "") -> None:
        """End the call from outside; the first reason counts. The sandbox is killed by its run."""
        if self.stopped is None:
            self.stopped = Stop(kind, reason)
            if self.live is not None:
                self.live.connection.close()

    def check(self) -> None:
        """Raises `StoppedError` when the call was stopped while its sandbox was being made."""
        if self.stopped is not None:
            raise StoppedError(self.stopped)

    def arm_timeout(self) -> None:
        """The function's time runs from GO."""
        loop = asyncio.get_running_loop()
        self._ends_at = loop.time() + self.options.timeout
        self._timeout = loop.call_at(self._ends_at, self.stop, StopKind.TIMEOUT)

    @property
    def remaining_s(self) -> float:
        """How long its function may run on."""
        if self._ends_at is None:
            return self.options.timeout
        return max(0.0, self._ends_at - asyncio.get_running_loop().time())

    def disarm_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()

    def leave_session(self, ending: Ending | None = None) -> str:
        """After the end: the session keeps the sandbox, or is over; why, in the latter case."""
        session, live = self.session, self.live
        if session is None or not self.fenced_in:
            return ""  # the next call may begin in a sandbox of its own
        if live is not None and self.stopped is None and self._left_alive(live):
            session.live, self.live = live, None
            return ""
        session.live, session.over = None, True
        error = ending.outcome.error if ending is not None else None
        why = _FATAL.get(error.kind, "") if error is not None else ""
        return f"its sandbox did not survive {self.record.call_id}{why}"

    def _left_alive(self, live: LiveSandbox) -> bool:
        if self.touched:
            return self.answered and live.keep()
        return not live.connection.problem  # the call was refused before it came to its sandbox

    def receipt(self, runtime: str) -> Receipt:
        """What is known so far; the reader of the record adds queueing and total time."""
        live = self.live
        generation, _, checkpoint = (
            live.checkpoint.key.rpartition("/") if live and live.checkpoint else ("", "", "")
        )
        started_at = live.connection.started_at if live else None
        return Receipt(
            call_id=self.record.call_id,
            start_kind=live.kind if live else None,
            checkpoint=checkpoint or None,
            generation=generation or None,
            runtime=runtime,
            start_ms=(started_at - self.taken_at) * 1000 if started_at else 0.0,
            predicted_ms=_milliseconds(self.planned.predicted_s),
            attempt=self.record.attempt,
            worker_id=self.record.owner,
            fallback_reason=self.fallback_reason or self.planned.overruled or None,
            # A session that has its sandbox starts nothing that could be predicted.
            predicted_start_ms=None
            if live is not None and live.kind is StartKind.SESSION
            else _milliseconds(self.planned.predicted_start_s),
        )


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
