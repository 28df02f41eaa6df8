"""The Lua scripts against `readie_wire.lifecycle`, on real servers.

A machine does to calls whatever gateways, workers and time can do, with leases old and new, and
keeps a model that moves by the table alone. After each step every key of every call is compared.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

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
from readie_infra.store import CallStore, Event, Limits, Offer
from readie_wire.keys import Keys
from readie_wire.lifecycle import HELD, TERMINAL, TRANSITIONS, State, Transition, next_state
from support.call_records import CHECKPOINT_KEY, FAILURE, OPTIONS, SUCCESS, new_record
from support.redis_servers import RedisServer

T = TypeVar("T")
KEYS = Keys("t:")
SMALL, LARGE = 1 << 20, 1 << 30
WORKERS = ("worker-a", "worker-b")
TOKENS = ("alice", "bob")
GATEWAY = "gateway-1"
WINDOW = 8  # entries of one stream that a take looks at
MAX_LEASES = 3
ENDINGS = {
    State.SUCCEEDED: Transition.SUCCEED,
    State.FAILED: Transition.FAIL,
    State.CANCELLED: Transition.CANCEL,
}


@dataclass
class ModelCall:
    call_id: str
    token: str
    memory: int
    exposed: bool
    pinned: bool
    state: State = State.QUEUED
    owner: str = ""
    attempt: int = 0
    cancel: bool = False
    overdue: bool = False
    events: list[str] = field(default_factory=lambda: ["accepted"])

    def may(self, transition: Transition) -> bool:
        return (self.state, transition) in TRANSITIONS

    def move(self, transition: Transition) -> None:
        self.state = next_state(self.state, transition)
        if self.state in TERMINAL:
            self.events.append("result")


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
        self.store = CallStore(connect(server.socket_url), KEYS, Limits(max_leases=MAX_LEASES))
        self.client: Any = connect(server.socket_url)  # its types name every way to answer
        self.calls: dict[str, ModelCall] = {}
        self.back: dict[str, list[str]] = {token: [] for token in TOKENS}
        self.queue: dict[str, list[str]] = {token: [] for token in TOKENS}

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
    )
    def enqueue(self, token: str, memory: int, exposed: bool, pinned: bool) -> None:
        choice = {} if pinned else {"choice": type(new_record().choice)()}
        record = new_record(
            token=token, exposed=exposed, options={**OPTIONS, "memory": memory}, **choice
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
        self.calls[record.call_id] = ModelCall(record.call_id, token, memory, exposed, pinned)
        self.queue[token].append(record.call_id)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        call = self.any_call(data)
        answer = self.run(self.store.cancel(call.call_id, "not needed"))
        if call.state is State.RUNNING:
            call.cancel = True  # its worker ends it, or the sweep after the grace
        elif call.may(Transition.CANCEL):
            call.overdue = False
            self.unqueue(call)
            call.move(Transition.CANCEL)
        assert answer is call.state

    @rule(data=st.data())
    def time_is_over(self, data: st.DataObject) -> None:
        """Virtual time: this call's due time has come."""
        call = self.any_call(data)
        if call.state not in TERMINAL:
            self.run(self.make_overdue(call.call_id))
            call.overdue = True

    @rule()
    def sweep(self) -> None:
        swept = self.run(self.store.sweep())
        due = [call for call in self.calls.values() if call.overdue]
        assert {*swept.ended, *swept.requeued} == {call.call_id for call in due}
        assert not swept.rebuilt
        for call in due:
            call.overdue = False
            if call.state is State.QUEUED:
                self.unqueue(call)
                call.move(Transition.EXPIRE)
            elif call.state is State.LEASED and call.attempt < MAX_LEASES:
                self.hand_back(call)
            elif call.cancel:
                call.move(Transition.CANCEL)
            else:
                call.move(Transition.LOSE)
        self.learn_order_of_returned({call.token for call in due})

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
        firsts = [self.first_that_fits(token, offer) for token in TOKENS]
        if record is None:
            assert firsts == [None, None]
            return multiple()
        call = self.calls[record.call_id]
        assert call in firsts
        assert record.payload == b"payload"
        self.unqueue(call)
        call.move(Transition.TAKE)
        if ready and call.pinned:
            call.move(Transition.START)
        call.owner, call.attempt = worker, call.attempt + 1
        assert (record.state, record.owner, record.attempt) == (call.state, worker, call.attempt)
        return Lease(call.call_id, worker, call.attempt)

    @rule(lease=leases)
    def start(self, lease: Lease) -> None:
        call, holds = self.held(lease)
        started = self.run(self.store.start(lease.call_id, lease.owner, lease.attempt, 60))
        assert started == (holds and call.state in HELD)
        if started and call.state is State.LEASED:
            call.move(Transition.START)
            call.overdue = False

    @rule(lease=leases)
    def release(self, lease: Lease) -> None:
        call, holds = self.held(lease)
        released = self.run(self.store.release(lease.call_id, lease.owner, lease.attempt, "full"))
        assert released == (holds and call.may(Transition.RELEASE))
        if released:
            call.overdue = False
            self.hand_back(call)

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

    @rule(lease=leases, end=st.sampled_from(sorted(ENDINGS)), logs=st.integers(0, 2))
    def finish(self, lease: Lease, end: State, logs: int) -> None:
        call, holds = self.held(lease)
        told = self.run(
            self.store.finish(
                lease.call_id,
                lease.owner,
                lease.attempt,
                end,
                SUCCESS if end is State.SUCCEEDED else FAILURE,
                logs=[Event("log", b"{}")] * logs,
            )
        )
        allowed = holds and call.may(ENDINGS[end])
        assert told == (allowed or (holds and call.state is end))
        if allowed:
            call.overdue = False
            call.events += ["log"] * logs
            call.move(ENDINGS[end])

    @rule(worker=st.sampled_from(WORKERS))
    def a_worker_leaves(self, worker: str) -> None:
        requeued, lost = self.run(self.store.leave(worker))
        held = [c for c in self.calls.values() if c.owner == worker and c.state in HELD]
        assert {*requeued, *lost} == {call.call_id for call in held}
        for call in held:
            call.overdue = False
            if call.state is State.LEASED:
                self.hand_back(call)
            else:
                call.move(Transition.LOSE)
        self.learn_order_of_returned(set(TOKENS))

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
        assert sorted(entries) == sorted(self.in_state(State.QUEUED))
        ready = {token.decode() for token in await self.client.zrange(KEYS.ready("cpu"), 0, -1)}
        assert ready == {token for token in TOKENS if self.back[token] or self.queue[token]}
        due = {call.decode() for call in await self.client.zrange(KEYS.due, 0, -1)}
        assert due == {c.call_id for c in self.calls.values() if c.state not in TERMINAL}
        for worker in WORKERS:
            held = {call.decode() for call in await self.client.hkeys(KEYS.held(worker))}
            assert held == {c for c in self.in_state(*HELD) if self.calls[c].owner == worker}
        for call in self.calls.values():
            await self.compare_call(call)

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
        for key in (KEYS.call(call.call_id), KEYS.events(call.call_id)):
            assert (await self.client.ttl(key) > 0) == ended
        assert await self.client.exists(KEYS.subscribers(call.call_id)) == (not ended)

    # The model's own small parts.

    def any_call(self, data: st.DataObject) -> ModelCall:
        return self.calls[data.draw(st.sampled_from(sorted(self.calls)), label="call")]

    def in_state(self, *states: State) -> list[str]:
        return [call.call_id for call in self.calls.values() if call.state in states]

    def held(self, lease: Lease) -> tuple[ModelCall, bool]:
        call = self.calls[lease.call_id]
        return call, (call.owner, call.attempt) == (lease.owner, lease.attempt)

    def unqueue(self, call: ModelCall) -> None:
        for line in (self.back[call.token], self.queue[call.token]):
            if call.call_id in line:
                line.remove(call.call_id)

    def hand_back(self, call: ModelCall) -> None:
        call.move(Transition.RELEASE)
        call.owner = ""
        self.back[call.token].append(call.call_id)

    def learn_order_of_returned(self, tokens: set[str]) -> None:
        """Calls handed back in one step come in any order; which ones they are is known."""
        for token in tokens:
            order = self.run(self.order_of(KEYS.returned("cpu", token)))
            assert sorted(order) == sorted(self.back[token])
            self.back[token] = order

    def first_that_fits(self, token: str, offer: Offer) -> ModelCall | None:
        for call_id in [*self.back[token][:WINDOW], *self.queue[token][:WINDOW]]:
            call = self.calls[call_id]
            fits = call.memory <= offer.memory_free and (offer.exposed_ok or not call.exposed)
            if fits and not call.overdue:
                return call
        return None

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
