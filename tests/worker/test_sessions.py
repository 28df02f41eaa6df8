"""Sessions on a real worker with real sandboxes: the sandbox stays, and ends in every way it can."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from readie_infra.blobs import payload_key
from readie_infra.errors import SessionEndedError
from readie_infra.store import CallStore
from readie_wire.keys import Keys, new_session_id
from readie_wire.lifecycle import State
from readie_wire.outcome import ErrorKind, StartKind
from readie_wire.records import SessionRecord
from readie_worker.sandbox.api import SandboxSpec
from readie_worker.sandbox.fork import ForkRuntime
from readie_worker.sandbox.fork_sandbox import ForkSandbox
from readie_worker.sandbox.guarded import GuardedRuntime
from readie_worker.service import Worker
from support.calling import SURELY, Caller, Ended
from support.executor_driver import pickled_call
from support.redis_servers import RedisServer

KEPT: dict[str, Any] = {}


@pytest.fixture
async def worker(start_worker: Any, short_path: Path) -> AsyncIterator[Worker]:
    runtime = GuardedRuntime(ForkRuntime(short_path, environment=dict(os.environ)))
    await runtime.open()
    async with start_worker(runtime, spares=0) as running:
        yield running


async def opened(store: CallStore) -> str:
    record = SessionRecord(new_session_id(), "default", "cpu")
    assert await store.open_session(record)
    return record.session_id


async def spawn(caller: Caller, session: str, function: Any, *args: Any, **options: Any) -> str:
    record = caller.record(function, *args, **options)
    payload = pickled_call(function, *args)
    return await caller.enqueue(replace(record, session=session, payload=payload))


async def call(caller: Caller, session: str, function: Any, *args: Any, **options: Any) -> Ended:
    return await caller.end_of(await spawn(caller, session, function, *args, **options))


async def end_reason(caller: Caller, session: str) -> str:
    async with asyncio.timeout(SURELY):
        while True:
            record = await caller.store.read_session(session)
            assert record is not None
            if record.ended:
                return record.reason
            await asyncio.sleep(0.02)


def count(name: str) -> tuple[int, int]:
    KEPT[name] = KEPT.get(name, 0) + 1
    return KEPT[name], os.getpid()


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def memory_held(worker: Worker) -> int:
    described = worker.describe()
    return described.memory_total - described.memory_free


async def until_nothing_is_held(worker: Worker) -> None:
    async with asyncio.timeout(SURELY):
        while memory_held(worker):
            await asyncio.sleep(0.02)


async def test_calls_of_a_session_share_one_process(caller: Caller, worker: Worker) -> None:
    session = await opened(caller.store)
    ends = [await call(caller, session, count, "a") for _ in range(3)]
    assert [end.value[0] for end in ends] == [1, 2, 3]
    assert len({end.value[1] for end in ends}) == 1
    kinds = [end.receipt.start_kind for end in ends]
    assert kinds == [StartKind.COLD, StartKind.SESSION, StartKind.SESSION]
    assert memory_held(worker) == 1 << 30


async def test_two_sessions_share_nothing(caller: Caller, worker: Worker) -> None:
    first, second = await opened(caller.store), await opened(caller.store)
    ends = [await call(caller, session, count, "a") for session in (first, second)]
    assert [end.value[0] for end in ends] == [1, 1]
    assert ends[0].value[1] != ends[1].value[1]


async def test_calls_that_come_together_run_one_at_a_time_in_order(
    caller: Caller, worker: Worker
) -> None:
    def timed(number: int) -> tuple[int, float, float]:
        began = time.monotonic()
        time.sleep(0.05)
        return number, began, time.monotonic()

    session = await opened(caller.store)
    ids = [await spawn(caller, session, timed, number) for number in range(5)]
    values = [(await caller.end_of(call_id)).value for call_id in ids]
    assert [value[0] for value in sorted(values, key=lambda value: value[1])] == list(range(5))
    assert all(before[2] <= after[1] for before, after in pairwise(values))


async def test_each_call_gets_its_own_output(caller: Caller, worker: Worker) -> None:
    session = await opened(caller.store)
    for word in ("one", "two"):
        end = await call(caller, session, print, word)
        assert end.stdout == f"{word}\n"


async def test_an_exception_and_an_exit_keep_the_session(caller: Caller, worker: Worker) -> None:
    def fail() -> None:
        raise ValueError("no")

    session = await opened(caller.store)
    await call(caller, session, count, "a")
    assert (await call(caller, session, fail)).error.kind is ErrorKind.EXCEPTION
    assert (await call(caller, session, sys.exit, 3)).error.kind is ErrorKind.EXIT
    assert (await call(caller, session, count, "a")).value[0] == 2


async def test_a_sandbox_that_dies_ends_the_session_and_what_waits_in_it(
    caller: Caller, worker: Worker, tmp_path: Path
) -> None:
    def die(gate: Path) -> None:
        while not gate.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGSEGV)

    session, gate = await opened(caller.store), tmp_path / "gate"
    dying = await spawn(caller, session, die, gate)
    waiting = await spawn(caller, session, count, "a")
    gate.touch()
    assert (await caller.end_of(dying)).error.kind is ErrorKind.SANDBOX_DIED
    assert (await caller.end_of(waiting)).error.kind is ErrorKind.SESSION_ENDED
    with pytest.raises(SessionEndedError, match=dying):
        await spawn(caller, session, count, "a")
    await until_nothing_is_held(worker)


async def test_a_timeout_ends_the_session_and_says_so(caller: Caller, worker: Worker) -> None:
    session = await opened(caller.store)
    await call(caller, session, count, "a")
    error = (await call(caller, session, time.sleep, SURELY, timeout=0.2)).error
    assert error.kind is ErrorKind.TIMEOUT
    assert error.message.endswith("; its session has ended with it")
    assert (await end_reason(caller, session)).endswith(", which ran longer than its timeout")
    await until_nothing_is_held(worker)


async def test_a_call_that_is_cancelled_while_it_runs_ends_the_session_and_says_so(
    caller: Caller, worker: Worker
) -> None:
    session = await opened(caller.store)
    running = await spawn(caller, session, time.sleep, SURELY)
    await caller.until(running, lambda snapshot: snapshot.record.state is State.RUNNING)
    await caller.store.cancel(running, "not needed")
    error = (await caller.end_of(running)).error
    assert error.message == "the call was cancelled: not needed; its session has ended with it"
    assert (await end_reason(caller, session)).endswith(", which was cancelled while it ran")


class Gated(ForkRuntime):
    """Its first cold start waits for a gate."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.reached, self.gate = asyncio.Event(), asyncio.Event()

    async def cold(self, spec: SandboxSpec) -> ForkSandbox:
        if not self.reached.is_set():
            self.reached.set()
            await self.gate.wait()
        return await super().cold(spec)


async def test_a_call_that_is_cancelled_before_it_runs_leaves_the_session_to_the_next(
    caller: Caller, start_worker: Any, short_path: Path
) -> None:
    runtime = Gated(short_path, environment=dict(os.environ))
    await runtime.open()
    async with start_worker(runtime, spares=0) as worker:
        session = await opened(caller.store)
        first = await spawn(caller, session, count, "a")
        await runtime.reached.wait()
        second = await spawn(caller, session, count, "a")
        assert await caller.store.cancel(first, "not needed") is State.CANCELLED
        assert (await caller.end_of(second)).value[0] == 1
        runtime.gate.set()  # the sandbox that nobody wants comes up, and goes
        async with asyncio.timeout(SURELY):
            while worker.describe().free_slots < 2:
                await asyncio.sleep(0.02)
        assert (await call(caller, session, count, "a")).value[0] == 2


async def test_a_call_that_does_not_come_to_its_sandbox_leaves_it_alone(
    caller: Caller, worker: Worker
) -> None:
    session = await opened(caller.store)
    await call(caller, session, count, "a")
    record = caller.record(count, "a")
    lost = replace(record, session=session, payload=b"", payload_blob=payload_key(record.call_id))
    refused = (await caller.end_of(await caller.enqueue(lost))).error
    assert "session has ended" not in refused.message
    assert (await call(caller, session, count, "a")).value[0] == 2


async def test_sessions_are_let_go_when_the_store_has_lost_them(
    caller: Caller, worker: Worker, server: RedisServer
) -> None:
    session = await opened(caller.store)
    await call(caller, session, count, "a")
    server.flush()
    await until_nothing_is_held(worker)


async def test_a_cancelled_call_ends_though_its_order_was_lost(
    caller: Caller, worker: Worker, server: RedisServer
) -> None:
    session = await opened(caller.store)
    running = await spawn(caller, session, time.sleep, SURELY)
    await caller.until(running, lambda snapshot: snapshot.record.state is State.RUNNING)
    server.command("HSET", Keys().call(running), "cancel", "not needed")  # and tell nobody
    assert (await caller.end_of(running)).state is State.CANCELLED
    await until_nothing_is_held(worker)


async def test_a_sandbox_that_dies_between_two_calls_ends_the_session(
    caller: Caller, worker: Worker
) -> None:
    session = await opened(caller.store)
    end = await call(caller, session, count, "a")
    os.kill(end.value[1], signal.SIGKILL)
    assert await end_reason(caller, session) == "its sandbox ended between two calls"
    await until_nothing_is_held(worker)


async def test_ending_a_session_ends_its_sandbox(caller: Caller, worker: Worker) -> None:
    session = await opened(caller.store)
    pid = (await call(caller, session, count, "a")).value[1]
    assert await caller.store.end_session(session, "enough")
    await until_nothing_is_held(worker)
    async with asyncio.timeout(SURELY):
        while is_alive(pid):
            await asyncio.sleep(0.02)


async def test_ending_a_session_cancels_the_call_that_runs(caller: Caller, worker: Worker) -> None:
    session = await opened(caller.store)
    running = await spawn(caller, session, time.sleep, SURELY)
    await caller.until(running, lambda snapshot: snapshot.record.state is State.RUNNING)
    assert await caller.store.end_session(session, "enough")
    assert (await caller.end_of(running)).state is State.CANCELLED
    await until_nothing_is_held(worker)


async def test_a_first_call_that_is_refused_leaves_the_session_open(
    caller: Caller, worker: Worker
) -> None:
    session = await opened(caller.store)
    refused = await call(caller, session, count, "a", network="none")  # fork cannot
    assert refused.error.kind is ErrorKind.INVALID_REQUEST
    assert (await call(caller, session, count, "a")).value[0] == 1


async def test_a_call_out_of_memory_keeps_its_limit_for_the_next(
    caller: Caller, worker: Worker
) -> None:
    def fill() -> int:
        return len(bytearray(1 << 30))

    session = await opened(caller.store)
    for _ in range(2):
        limits = {"memory": 256 << 20, "max_memory": 256 << 20}
        end = await call(caller, session, fill, **limits)
        assert end.error.kind is ErrorKind.OUT_OF_MEMORY


async def test_sessions_end_when_their_worker_stops(
    caller: Caller, start_worker: Any, short_path: Path
) -> None:
    runtime = GuardedRuntime(ForkRuntime(short_path, environment=dict(os.environ)))
    await runtime.open()
    async with start_worker(runtime, spares=0):
        session = await opened(caller.store)
        await call(caller, session, count, "a")
    assert await end_reason(caller, session) == "its worker is gone"
