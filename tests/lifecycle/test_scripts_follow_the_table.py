"""The Lua scripts against `readie_wire.lifecycle`, on real servers.

A machine does to calls whatever gateways, workers and time can do, with leases old and new, and
keeps a model that moves by the table alone. After each step every key of every call is compared.
"""

import asyncio
import math
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from readie_infra.connecting import connect
from readie_infra.errors import SessionEndedError, SessionUnknownError
from readie_infra.store import CallStore, Event, Hold, Limits, Offer
from readie_wire.keys import Keys
from readie_wire.lifecycle import HELD, TERMINAL, State, Transition
from readie_wire.records import CallRecord, SessionRecord
from support.call_records import CHECKPOINT_KEY, FAILURE, OPTIONS, SUCCESS, new_record
from support.lifecycle_model import MAX_LEASES, TOKENS, Model, ModelCall, ModelSession
from support.redis_servers import RedisServer

T = TypeVar("T")
KEYS = Keys("t:")
SMALL, LARGE = 1 << 20, 1 << 30
WORKERS = ("worker-a", "worker-b")
GATEWAY = "gateway-1"
MOST_SESSIONS = 3
ENDINGS = {
    State.SUCCEEDED: Transition.SUCCEED,
    State.FAILED: Transition.FAIL,
    State.CANCELLED: Transition.CANCEL,
    State.DEAD: Transition.PARK,
}


@dataclass(frozen=True)
class Lease:
    """What a worker believes it holds; true or long past."""

    call_id: str
    owner: str
    attempt: int


class Lifecycle(RuleBasedStateMachine):
    leases = Bundle("leases")

    def __init__(self, server: RedisServer) -> None:
        super().__init__()
        server.flush()
        self.runner = asyncio.Runner()
        limits = Limits(max_leases=MAX_LEASES, settle_s=0)
        self.store = CallStore(connect(server.socket_url), KEYS, limits)
        self.client: Any = connect(server.socket_url)  # its types name every way to answer
        self.model = Model()
        self.calls = self.model.calls
        self.sessions = self.model.sessions
        self.dropped: set[str] = set()
        self.back, self.queue = self.model.back, self.model.queue

    def teardown(self) -> None:
        self.run(self.store.close())
        self.run(self.client.aclose())
        self.runner.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    # What gateways do.

    @initialize()
    def a_first_call(self) -> None:
        self.enqueue("alice", SMALL, exposed=False, pinned=False)

    @rule(
        token=st.sampled_from(TOKENS),
        memory=st.sampled_from((SMALL, LARGE)),
        exposed=st.booleans(),
        pinned=st.booleans(),
        reruns=st.integers(0, 2),
    )
    def enqueue(
        self, token: str, memory: int, exposed: bool, pinned: bool, reruns: int = 0
    ) -> None:
        self.accept(ModelCall("", token, memory, exposed, pinned, reruns=reruns))

    @rule(token=st.sampled_from(TOKENS))
    def open_a_session(self, token: str) -> None:
        if len(self.sessions) < MOST_SESSIONS:
            session = ModelSession(f"sess-{len(self.sessions):032x}", token)  # in a known order
            record = SessionRecord(session.session_id, token, "cpu")
            for _ in range(2):
                assert self.run(self.store.open_session(record))
            self.sessions[session.session_id] = session

    @rule(data=st.data(), memory=st.sampled_from((SMALL, LARGE)), pinned=st.booleans())
    def enqueue_in_a_session(self, data: st.DataObject, memory: int, pinned: bool) -> None:
        session = self.any_session(data)
        if session is None:
            return
        call = ModelCall("", session.token, memory, False, pinned, session.session_id)
        if session.ended:
            with pytest.raises(SessionEndedError):
                self.accept(call)
        else:
            self.accept(call)

    @rule(data=st.data())
    def another_token_names_the_session(self, data: st.DataObject) -> None:
        session = self.any_session(data)
        if session is not None:
            [other] = set(TOKENS) - {session.token}
            with pytest.raises(SessionUnknownError):
                self.accept(ModelCall("", other, SMALL, False, False, session.session_id))

    def accept(self, call: ModelCall) -> None:
        choice = {} if call.pinned else {"choice": type(new_record().choice)()}
        record = new_record(
            token=call.token,
            exposed=call.exposed,
            options={**OPTIONS, "memory": call.memory, "retries": call.reruns},
            session=call.session,
            **choice,
        )
        for _ in range(2):  # a repeat, as after a lost answer, changes nothing
            answer = self.run(
                self.store.enqueue(
                    record,
                    idempotency=(record.call_id, "hash"),
                    queue_timeout=60,
                    gateway=GATEWAY,
                    queue_limit=1_000,
                )
            )
            assert answer.created
        call.call_id = record.call_id
        self.model.add(call)

    @rule(data=st.data())
    def end_a_session(self, data: st.DataObject) -> None:
        session = self.any_session(data)
        if session is None:
            return
        assert self.run(self.store.end_session(session.session_id, "enough")) != session.ended
        if not session.ended:
            current = self.calls.get(session.current)
            if current is not None and current.state is State.RUNNING:
                current.cancel = True
            self.model.end_session(session)

    @rule(data=st.data())
    def a_session_is_idle_too_long(self, data: st.DataObject) -> None:
        session = self.any_session(data)
        if session is not None and session.idle:
            self.run(self.client.zadd(KEYS.sessions, {session.session_id: 1}))
            self.sweep(ended_session=session)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        call = self.any_call(data)
        answer = self.run(self.store.cancel(call.call_id, "not needed"))
        if call.state is State.RUNNING:
            call.cancel = True  # its worker ends it, or the sweep after the grace
        elif call.may(Transition.CANCEL):
            self.model.end(call, Transition.CANCEL)
        assert answer is call.state

    @rule(data=st.data())
    def time_is_over(self, data: st.DataObject) -> None:
        """Virtual time: this call's due time has come."""
        call = self.any_call(data)
        if call.state not in TERMINAL:
            self.run(self.make_overdue(call.call_id))
            call.overdue = True

    @rule()
    def sweep(self, ended_session: ModelSession | None = None) -> None:
        tokens = {call.token for call in self.calls.values() if call.overdue}
        swept = self.run(self.store.sweep())
        ended, requeued = self.model.sweep()
        assert (set(swept.ended), set(swept.requeued)) == (ended, requeued)
        assert not swept.rebuilt
        assert swept.sessions == ([ended_session.session_id] if ended_session else [])
        if ended_session is not None:
            self.model.end_session(ended_session)
        self.learn_order_of_returned(tokens)

    @rule(token=st.sampled_from(TOKENS), also_ready=st.booleans())
    def somebody_deletes_the_queue(self, token: str, also_ready: bool) -> None:
        """The call records are the truth: a sweep rebuilds the entries."""
        self.sweep()
        self.run(self.client.delete(KEYS.calls("cpu", token), KEYS.returned("cpu", token)))
        if also_ready:
            self.run(self.client.delete(KEYS.ready("cpu")))
        waiting = {*self.back[token], *self.queue[token]}
        swept = self.run(self.store.sweep())
        assert waiting <= set(swept.rebuilt)
        self.back[token] = []
        self.queue[token] = self.run(self.order_of(KEYS.calls("cpu", token)))
        assert set(self.queue[token]) == waiting

    @rule(data=st.data())
    def an_operator_drops_a_call(self, data: st.DataObject) -> None:
        call = self.any_call(data)
        parked = call.state is State.DEAD and call.call_id not in self.dropped
        assert self.run(self.store.drop_dead(call.call_id)) == parked
        if parked:
            self.dropped.add(call.call_id)

    @rule()
    def the_script_cache_is_lost(self) -> None:
        self.run(self.client.script_flush())

    # What workers do.

    @rule(
        target=leases,
        worker=st.sampled_from(WORKERS),
        memory=st.sampled_from((SMALL, LARGE)),
        exposed_ok=st.booleans(),
        ready=st.booleans(),
    )
    def take(self, worker: str, memory: int, exposed_ok: bool, ready: bool) -> Any:
        keys = [CHECKPOINT_KEY] if ready else []
        offer = Offer(worker, "cpu", 1, memory, ready=keys, exposed_ok=exposed_ok)
        record = self.run(self.store.take(offer))
        firsts = [self.model.first_that_fits(token, offer) for token in TOKENS]
        if record is None:
            assert firsts == [None, None]
            return multiple()
        call = self.calls[record.call_id]
        assert call in firsts
        assert record.payload == b"payload"
        if call.session:
            self.sessions[call.session].worker = worker
        self.given(call, record, worker, started=ready and call.pinned)
        return Lease(call.call_id, worker, call.attempt)

    @rule(target=leases, data=st.data(), worker=st.sampled_from(WORKERS), ready=st.booleans())
    def take_session(self, data: st.DataObject, worker: str, ready: bool) -> Any:
        session = self.any_session(data)
        if session is None:
            return multiple()
        record = self.run(self.store.take_session(worker, session.session_id, ready=ready))
        call = self.model.next_of_session(session, worker)
        assert (record.call_id if record else None) == (call.call_id if call else None)
        if call is None or record is None:
            return multiple()
        session.current = call.call_id
        self.given(call, record, worker, started=ready)
        return Lease(call.call_id, worker, call.attempt)

    def given(self, call: ModelCall, record: CallRecord, worker: str, *, started: bool) -> None:
        self.model.unqueue(call)
        call.move(Transition.TAKE)
        if started:
            call.move(Transition.START)
        call.owner, call.attempt, call.overdue = worker, call.attempt + 1, False
        assert (record.state, record.owner, record.attempt) == (call.state, worker, call.attempt)

    @rule(lease=leases)
    def start(self, lease: Lease) -> None:
        call, holds = self.held(lease)
        started = self.run(self.store.start(lease.call_id, lease.owner, lease.attempt, 60))
        assert started == (holds and call.state in HELD)
        if started and call.state is State.LEASED:
            call.move(Transition.START)
            call.overdue = False

    @rule(lease=leases)
    def renew(self, lease: Lease) -> None:
        """A worker says that it holds a call, and that it has the sandbox of every session."""
        call, holds = self.held(lease)
        hold = Hold(lease.call_id, lease.attempt, 60)
        unwanted = self.run(self.store.renew(lease.owner, [hold], sorted(self.sessions)))
        wanted = holds and call.state in HELD and not call.cancel
        assert unwanted.calls == ([] if wanted else [lease.call_id])
        if wanted and call.state is State.RUNNING:
            call.overdue = False
        assert unwanted.sessions == [
            name
            for name, session in sorted(self.sessions.items())
            if session.ended or session.worker != lease.owner
        ]

    @rule(lease=leases)
    def release(self, lease: Lease) -> None:
        call, holds = self.held(lease)
        released = self.run(self.store.release(lease.call_id, lease.owner, lease.attempt, "full"))
        assert released == (holds and call.may(Transition.RELEASE))
        if released:
            self.model.hand_back(call)

    @rule(lease=leases, logs=st.integers(0, 2))
    def retry(self, lease: Lease, logs: int) -> None:
        call, holds = self.held(lease)
        again = self.run(
            self.store.retry(
                lease.call_id, lease.owner, lease.attempt, [Event("log", b"{}")] * logs
            )
        )
        assert again == (holds and call.state in HELD and self.model.run_again(call))
        if again:
            call.events += ["log"] * logs

    @rule(lease=leases, count=st.integers(0, 3))
    def emit(self, lease: Lease, count: int) -> None:
        call, holds = self.held(lease)
        go_on = self.run(
            self.store.emit(
                lease.call_id, lease.owner, lease.attempt, [Event("log", b"{}")] * count
            )
        )
        holds = holds and call.state in HELD
        assert go_on == (holds and not call.cancel)
        if holds:
            call.events += ["log"] * count

    @rule(
        lease=leases,
        end=st.sampled_from(sorted(ENDINGS)),
        logs=st.integers(0, 2),
        sandbox_died=st.booleans(),
    )
    def finish(self, lease: Lease, end: State, logs: int, sandbox_died: bool) -> None:
        call, holds = self.held(lease)
        told = self.run(
            self.store.finish(
                lease.call_id,
                lease.owner,
                lease.attempt,
                end,
                SUCCESS if end is State.SUCCEEDED else FAILURE,
                logs=[Event("log", b"{}")] * logs,
                session_over="its sandbox died" if sandbox_died else "",
            )
        )
        allowed = holds and call.may(ENDINGS[end])
        assert told == (allowed or (holds and call.state is end))
        if allowed:
            call.events += ["log"] * logs
            self.model.end(call, ENDINGS[end], with_session=sandbox_died)

    @rule(worker=st.sampled_from(WORKERS))
    def a_worker_leaves(self, worker: str) -> None:
        requeued, lost = self.run(self.store.leave(worker))
        assert (set(requeued), set(lost)) == self.model.leave(worker)
        self.learn_order_of_returned(set(TOKENS))
        self.learn_order_of_moved_on(set(TOKENS))

    # What must hold after every step.

    @invariant()
    def every_key_of_every_call_agrees(self) -> None:
        self.run(self.compare())

    async def compare(self) -> None:
        entries: list[str] = []
        for token in TOKENS:
            for stream, model in (
                (KEYS.returned("cpu", token), self.back[token]),
                (KEYS.calls("cpu", token), self.queue[token]),
            ):
                order = await self.order_of(stream)
                assert order == model
                entries += order
        parked = await self.order_of(KEYS.dead("cpu"))
        assert set(parked) == set(self.model.in_state(State.DEAD)) - self.dropped
        for session in self.sessions.values():
            entries += await self.compare_session(session)
        assert sorted(entries) == sorted(self.model.in_state(State.QUEUED))
        opened = {key.decode() for key in await self.client.zrange(KEYS.sessions, 0, -1)}
        assert opened == {key for key, session in self.sessions.items() if not session.ended}
        ready = {token.decode() for token in await self.client.zrange(KEYS.ready("cpu"), 0, -1)}
        assert ready == {token for token in TOKENS if self.back[token] or self.queue[token]}
        due = {call.decode() for call in await self.client.zrange(KEYS.due, 0, -1)}
        assert due == {c.call_id for c in self.calls.values() if c.state not in TERMINAL}
        for worker in WORKERS:
            held = {call.decode() for call in await self.client.hkeys(KEYS.held(worker))}
            assert held == {c for c in self.model.in_state(*HELD) if self.calls[c].owner == worker}
        for call in self.calls.values():
            await self.compare_call(call)

    async def compare_session(self, session: ModelSession) -> list[str]:
        """Answers the calls that are queued for its worker alone."""
        record = await self.store.read_session(session.session_id)
        assert record is not None
        assert record.ended == session.ended
        assert (record.worker, record.current) == (session.worker, session.current)
        assert (record.served, record.waiting) == (session.served, len(session.line))
        assert await self.order_of(KEYS.session_calls(session.session_id)) == session.line
        score = await self.client.zscore(KEYS.sessions, session.session_id)
        assert (score is not None and score != math.inf) == session.idle
        assert (await self.client.ttl(KEYS.session(session.session_id)) > 0) == session.ended
        current = self.calls.get(session.current)
        waits = current is not None and self.model.next_of_session(session, session.worker)
        return [*session.line, *([session.current] if current and waits is current else [])]

    async def compare_call(self, call: ModelCall) -> None:
        snapshot = await self.store.read(call.call_id)
        assert snapshot is not None
        record = snapshot.record
        assert (record.state, record.attempt) == (call.state, call.attempt)
        assert record.state not in HELD or record.owner == call.owner
        assert [event.type for event in snapshot.events] == call.events
        assert [event.seq for event in snapshot.events] == list(range(1, len(call.events) + 1))
        ended = call.state in TERMINAL
        assert (record.outcome is not None) == ended
        assert (record.finished_ms > 0) == ended
        kept = call.state is State.DEAD and call.call_id not in self.dropped
        assert (await self.client.ttl(KEYS.call(call.call_id)) > 0) == (ended and not kept)
        assert (await self.client.ttl(KEYS.events(call.call_id)) > 0) == ended
        assert await self.client.exists(KEYS.subscribers(call.call_id)) == (not ended)

    # The model's own small parts.

    def any_call(self, data: st.DataObject) -> ModelCall:
        return self.calls[data.draw(st.sampled_from(sorted(self.calls)), label="call")]

    def any_session(self, data: st.DataObject) -> ModelSession | None:
        ids = sorted(self.sessions)
        return self.sessions[data.draw(st.sampled_from(ids), label="session")] if ids else None

    def held(self, lease: Lease) -> tuple[ModelCall, bool]:
        call = self.calls[lease.call_id]
        return call, (call.owner, call.attempt) == (lease.owner, lease.attempt)

    def learn_order_of_returned(self, tokens: set[str]) -> None:
        """Calls handed back in one step come in any order; which ones they are is known."""
        for token in tokens:
            order = self.run(self.order_of(KEYS.returned("cpu", token)))
            assert sorted(order) == sorted(self.back[token])
            self.back[token] = order

    def learn_order_of_moved_on(self, tokens: set[str]) -> None:
        """As before, for sessions that go on with their next calls elsewhere."""
        for token in tokens:
            order = self.run(self.order_of(KEYS.calls("cpu", token)))
            assert sorted(order) == sorted(self.queue[token])
            self.queue[token] = order

    async def order_of(self, stream: str) -> list[str]:
        return [fields[b"call"].decode() for _, fields in await self.client.xrange(stream)]

    async def make_overdue(self, call_id: str) -> None:
        await self.client.zadd(KEYS.due, {call_id: 1})
        await self.client.hset(KEYS.call(call_id), "due_ms", "1")


def test_scripts_and_table_agree_whatever_happens(each_redis: RedisServer) -> None:
    class OnThisServer(Lifecycle):
        def __init__(self) -> None:
            super().__init__(each_redis)

    run_state_machine_as_test(
        OnThisServer, settings=settings(max_examples=40, stateful_step_count=40)
    )
