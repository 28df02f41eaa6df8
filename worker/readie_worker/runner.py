"""One call from its take to its outcome: a sandbox, the fence, the function, the end.

Until the executor says STARTED the function's bytes were not touched, so any problem becomes one
cold start. From then on the call is never run again: it ends with what is known.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import structlog

from readie_infra.blobs import BlobStore
from readie_infra.errors import BlobError, StoreUnavailableError
from readie_infra.sealing import Seal
from readie_infra.store import CallStore
from readie_wire.envelope import CallHeader, CallKind
from readie_wire.outcome import Encoding, ErrorInfo, ErrorKind, Receipt
from readie_wire.records import CallRecord
from readie_wire.versions import python_minor
from readie_worker import outcomes
from readie_worker.background import Background
from readie_worker.capacity import Grant
from readie_worker.claiming import claim_ready
from readie_worker.errors import (
    CallRefusedError,
    FencedError,
    NotStartedError,
    Stop,
    StopKind,
    StoppedError,
)
from readie_worker.holdings import Holdings
from readie_worker.options import DEFAULT_RESULT_TTL_S, CallOptions
from readie_worker.outcomes import Ending
from readie_worker.persisting import persist
from readie_worker.pool import Pool
from readie_worker.relaying import Relay
from readie_worker.running import Running
from readie_worker.sandbox.api import Checkpoint, SandboxExit
from readie_worker.sandbox.errors import SandboxError
from readie_worker.selection import Selection, Start
from readie_worker.sessions import HeldSession
from readie_worker.settling import Settler
from readie_worker.starting import LiveSandbox, Starter
from readie_worker.unsealing import opened_secrets

KILL_WITHIN_S = 10.0  # a process that SIGKILL does not end is in the kernel's hands
EXIT_WITHIN_S = 5.0  # from the end of its connection to a sandbox's exit code
DRAIN_S = 0.5  # for output after the end; what a left-behind process prints later is dropped
EARLY_CANCELS = 256  # orders kept for calls whose take has not been answered yet

log = structlog.stdlib.get_logger(__name__)


class Runner:
    """Runs calls side by side; every one of them ends in the store, or is not ours any more.

    ``patience`` (seconds) is how long an outcome waits for the store to come back.
    """

    def __init__(
        self,
        *,
        store: CallStore,
        blobs: BlobStore | None,
        starter: Starter,
        pool: Pool,
        holdings: Holdings,
        background: Background,
        runtime: str,
        patience: float,
        seal: Seal | None = None,
    ) -> None:
        self._store = store
        self._starter = starter
        self._pool = pool
        self._holdings = holdings
        self._selection = Selection(holdings)
        self._background = background
        self._runtime = runtime
        self._seal = seal
        self._patience = patience
        self._settler = Settler(store, blobs, patience)
        self._calls: dict[str, Running] = {}
        self._early_cancels: dict[str, str] = {}
        self.busy = asyncio.Event()  # while any call runs

    def cancel(self, call_id: str, reason: str) -> None:
        """An order to end a call. It may overtake the answer of the take that gave us the call."""
        if (call := self._calls.get(call_id)) is not None:
            call.stop(StopKind.CANCELLED, reason)
            return
        self._early_cancels[call_id] = reason
        if len(self._early_cancels) > EARLY_CANCELS:
            del self._early_cancels[next(iter(self._early_cancels))]

    def stop_all(self, reason: str) -> None:
        """The worker's grace is over: end what still runs, and tell its callers."""
        for call in self._calls.values():
            call.stop(StopKind.SHUTDOWN, reason)

    def stop_repeatable(self, reason: str) -> None:
        """End what may run again: by now somebody else may have it."""
        for call in self._calls.values():
            if call.record.reruns > 0 and call.stopped is None:
                log.warning("a repeatable call is ended", call=call.record.call_id, reason=reason)
                call.stop(StopKind.UNHEARD, reason)

    @property
    def calls(self) -> Iterable[Running]:
        """Those that run now."""
        return self._calls.values()

    async def run(
        self,
        record: CallRecord,
        claimed: LiveSandbox | None,
        grant: Grant,
        session: HeldSession | None = None,
    ) -> None:
        """Run a call that was just taken. ``claimed`` is the ready sandbox it was promised.

        A call of a ``session`` runs in that's sandbox, or makes the first one.
        """
        try:
            options = CallOptions.of(record)
        except CallRefusedError as refusal:
            if claimed is not None and (session is None or claimed is not session.live):
                self._starter.discard(claimed)
            receipt = Receipt(record.call_id, attempt=record.attempt, worker_id=record.owner)
            refused = outcomes.of_refusal(refusal.error, receipt)
            await self._settler.finish(record, refused, DEFAULT_RESULT_TTL_S)
            return
        call = Running(record, options, asyncio.get_running_loop().time(), grant, session)
        call.live = claimed
        self._calls[record.call_id] = call
        self.busy.set()
        try:
            if (reason := self._early_cancels.pop(record.call_id, None)) is not None:
                call.stop(StopKind.CANCELLED, reason)
            ending = await self._ending(call, claimed)
            if ending is not None:
                await self._settle(call, ending)
        finally:
            call.disarm_timeout()
            if self._calls.get(record.call_id) is call:  # else it runs here again already
                del self._calls[record.call_id]
            if not self._calls:
                self.busy.clear()
            if call.live is not None:
                call.leave_session()  # it was not settled: nobody else may have the sandbox
                self._starter.discard(call.live)

    async def _ending(self, call: Running, claimed: LiveSandbox | None) -> Ending | None:
        """How the call ended; None when it is not ours to tell."""
        try:
            return await self._execute(call, claimed)
        except FencedError as fenced:
            log.info("call dropped", call=call.record.call_id, reason=str(fenced))
            return None
        except StoppedError as stopped:
            return await self._stopped(call, stopped.stop)
        except CallRefusedError as refusal:
            return outcomes.of_refusal(refusal.error, call.receipt(self._runtime))
        except (NotStartedError, StoreUnavailableError, BlobError) as error:
            return outcomes.of_failed_start(str(error), call.receipt(self._runtime))
        except Exception as error:
            # A bug of ours must not leave a caller waiting for an answer that never comes.
            log.exception("the run of a call failed", call=call.record.call_id)
            return outcomes.of_fault(repr(error), call.receipt(self._runtime))

    async def _execute(self, call: Running, claimed: LiveSandbox | None) -> Ending:
        call.check()
        if call.session is not None and call.session.over and claimed is None:
            return outcomes.of_gone_session("it died", call.receipt(self._runtime))
        if call.options.network == "none" and not self._starter.confines_network:
            raise _network_refused()
        # Before the choice: a swap would let go of what was chosen while a large one comes.
        body = await self._settler.payload(call.record)
        if claimed is not None:
            checkpoint = claimed.checkpoint
            call.planned = Start.chosen(checkpoint, call.record.choice)
        else:
            call.planned = self._selection.plan(call.record, call.options)
            if self._starter.suits(call.options.network):
                claimed = call.live = claim_ready(self._pool, self._selection, call)
            checkpoint = call.planned.checkpoint
        try:
            return await self._attempt(call, checkpoint, claimed, body)
        except NotStartedError as problem:
            call.check()
            reason = str(problem)
            if call.live is not None and call.go_sent and not await self._never_started(call.live):
                return await self._died(call, call.live)
        if call.session is not None and call.session.live is not None:
            return outcomes.of_gone_session(reason, call.receipt(self._runtime))
        await self._forget_attempt(call)
        log.warning("falling back to a cold start", call=call.record.call_id, reason=reason)
        call.fallback_reason = reason
        if checkpoint is not None:
            await self._holdings.failed(checkpoint.key, reason)
        return await self._attempt(call, None, None, body)

    async def _attempt(
        self,
        call: Running,
        checkpoint: Checkpoint | None,
        claimed: LiveSandbox | None,
        body: bytes,
    ) -> Ending:
        """Run the call in one sandbox. Raises `NotStartedError` while another one may be tried."""
        live = call.live = await self._sandbox(call, checkpoint, claimed)
        call.check()
        _check_python(call.record, live)
        connection = live.connection
        await self._hand_over(call, live, body)
        watch = asyncio.get_running_loop().call_later(
            self._starter.start_timeout, self._give_up_on_start, live
        )
        message = await connection.ended
        watch.cancel()
        if message is not None and connection.started:
            if checkpoint is not None:
                self._holdings.worked(checkpoint.key)
            live.pipes.read_now()
            call.answered = True
            return outcomes.of_message(
                message, call.receipt(self._runtime), memory=call.grant.memory
            )
        call.check()
        if not connection.started:
            raise NotStartedError(f"its executor {connection.problem or 'refused the call'}")
        return await self._died(call, live)

    async def _sandbox(
        self, call: Running, checkpoint: Checkpoint | None, claimed: LiveSandbox | None
    ) -> LiveSandbox:
        if claimed is not None:
            if self._starter.suits(call.options.network):
                return await _limited(claimed, call)
            self._starter.discard(claimed)
        with self._pool.awaited():
            return await self._starter.start(checkpoint, call.limits, call.options.network)

    async def _hand_over(self, call: Running, live: LiveSandbox, body: bytes) -> None:
        """CALL, then GO: in one go when the call is ours to start, else behind the fence."""
        header, within = self._header(call), self._starter.start_timeout
        call.touched, call.go_sent = True, call.fenced_in
        await live.connection.send_call(header, body, go=call.fenced_in, within=within)
        if not call.fenced_in:
            await live.connection.ready(within)
            await self._pass_fence(call)
            call.go_sent = True
            live.connection.go()
        relay = Relay(
            self._store,
            self._background,
            call.record,
            live.output,
            live=call.options.stream_logs,
            # Cancelled or not ours any more: the store tells which when the end is reported.
            on_unwanted=lambda: call.stop(StopKind.CANCELLED),
        )
        call.attach(live, relay)
        call.arm_timeout()

    async def _pass_fence(self, call: Running) -> None:
        record = call.record
        ours = await persist(
            "start",
            lambda: self._store.start(
                record.call_id, record.owner, record.attempt, call.options.timeout
            ),
            self._patience,
        )
        call.fenced_in = ours
        call.check()
        if not ours:
            raise FencedError("it was cancelled, or its lease lapsed, before it started")

    def _give_up_on_start(self, live: LiveSandbox) -> None:
        """GO was sent long ago. Kill it first: what it said until then is still to be read."""
        connection = live.connection
        if not connection.started and not connection.ended.done():
            connection.problem = f"did not start within {self._starter.start_timeout:g} s"
            self._background.run("ending a sandbox that does not start", _end_and_close(live))

    async def _never_started(self, live: LiveSandbox) -> bool:
        """After GO: is it certain that the function did not begin, and cannot any more?"""
        connection = live.connection
        if await live.end(KILL_WITHIN_S) is None:
            return False
        await asyncio.wait({connection.closed}, timeout=EXIT_WITHIN_S)
        return connection.drained and not connection.started

    async def _forget_attempt(self, call: Running) -> None:
        call.disarm_timeout()
        call.go_sent = False
        relay, call.relay = call.relay, None
        live, call.live = call.live, None
        if relay is not None:
            await relay.close()
        if live is not None:
            self._starter.discard(live)

    async def _died(self, call: Running, live: LiveSandbox) -> Ending:
        exit_: SandboxExit | None = None
        try:
            async with asyncio.timeout(EXIT_WITHIN_S):
                exit_ = await live.sandbox.wait()
        except (TimeoutError, SandboxError):
            await live.end(KILL_WITHIN_S)
        await live.pipes.read_to_end(DRAIN_S)
        return outcomes.of_death(
            exit_,
            call.receipt(self._runtime),
            memory=call.grant.memory,
            last_lines=live.output.last_lines(),
        )

    async def _stopped(self, call: Running, stop: Stop) -> Ending:
        """Kill first, tell afterwards: when the caller hears of it, nothing runs any more."""
        receipt, peak = call.receipt(self._runtime), None
        if call.live is not None:
            peak = await call.live.sandbox.peak_memory()
            receipt = replace(receipt, peak_memory_mb=peak / outcomes.MB if peak else None)
            await call.live.end(KILL_WITHIN_S)
            await call.live.pipes.read_to_end(DRAIN_S)
        if stop.kind is StopKind.MEMORY:
            return outcomes.of_memory(receipt, limit=call.grant.memory, peak=peak)
        return outcomes.of_stop(stop, receipt, timeout=call.options.timeout)

    async def _settle(self, call: Running, ending: Ending) -> None:
        logs = await call.relay.close() if call.relay is not None else []
        over = call.leave_session(ending)
        ending = outcomes.with_its_session(ending) if over else ending
        await self._settler.finish(call.record, ending, call.options.result_ttl, logs, over)

    def _header(self, call: Running) -> dict[str, Any]:
        record, options = call.record, call.options
        pickled = record.kind is CallKind.PICKLE
        header = CallHeader(kind=record.kind, function=record.function, python=record.python)
        return {
            **header.to_json(),
            "call_id": record.call_id,
            "environment": dict(options.environment),
            "secrets": opened_secrets(record, self._seal),
            "result_limit": self._starter.result_limit,
            "result_encoding": str(Encoding.PICKLE if pickled else Encoding.JSON),
            "timeout": options.timeout,
            "session": bool(record.session),
        }


async def _limited(live: LiveSandbox, call: Running) -> LiveSandbox:
    """A sandbox made ahead gets the limits of its call before anything of it runs."""
    call.live = live
    try:
        if call.limits != live.limits or live.served:  # a session's call may have lifted its own
            await live.sandbox.set_limits(call.limits)
    except (SandboxError, OSError) as error:
        raise NotStartedError(f"a sandbox made ahead could not be used: {error}") from error
    return live


async def _end_and_close(live: LiveSandbox) -> None:
    await live.end(KILL_WITHIN_S)
    await asyncio.wait({live.connection.ended}, timeout=EXIT_WITHIN_S)
    live.connection.close()


def _check_python(record: CallRecord, live: LiveSandbox) -> None:
    """Pickled code runs on the minor version that made it and on no other."""
    if record.kind is not CallKind.PICKLE or not record.python or not live.python:
        return
    theirs, ours = python_minor(record.python), python_minor(live.python)
    if theirs != ours:
        raise CallRefusedError(
            ErrorInfo(
                kind=ErrorKind.INCOMPATIBLE_PYTHON,
                type="readie.IncompatiblePythonError",
                message=f"the call was made with Python {theirs}; this worker runs {ours}",
                details={"caller": theirs, "worker": ours},
            )
        )


def _network_refused() -> CallRefusedError:
    return CallRefusedError(
        ErrorInfo(
            kind=ErrorKind.INVALID_REQUEST,
            type="readie.InvalidRequestError",
            message='network="none" cannot be had here: this worker runs calls as plain processes; '
            "leave the option out, or use workers with gVisor",
            details={"field": "options.network"},
        )
    )
