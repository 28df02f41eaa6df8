"""Doorbells, bells and orders reach those who wait, and nothing is missed in between."""

import asyncio
from dataclasses import replace

from readie_infra.store import CallStore, Cursor, Event, Wakeup, snapshot_at_end
from readie_wire.keys import Keys
from readie_wire.lifecycle import State
from readie_wire.records import GenerationFacts, WorkerRecord
from support.call_records import FAILURE, enqueue, take
from support.redis_servers import RedisServer


def worker(boot: str) -> WorkerRecord:
    facts = GenerationFacts("g", "ab" * 32, ("checkpoint_1",), "3.11.7", "fork")
    return WorkerRecord(
        boot=boot,
        flavor="cpu",
        runtime="fork",
        isolation="none",
        python="3.11.7",
        protocol=3,
        slots=2,
        free_slots=1,
        memory_total=8,
        memory_free=4,
        generations=(facts,),
        pool={"g/checkpoint_1": 1},
    )


async def test_a_waiting_gateway_hears_of_logs_and_of_the_end(store: CallStore) -> None:
    record = await enqueue(store, gateway="gateway-1")
    waiting = asyncio.create_task(store.doorbells("gateway-1", "0-0", 3))
    await take(store)
    await store.emit(record.call_id, "worker-a", 1, [Event("log", b"1"), Event("log", b"2")])
    last, calls = await waiting
    assert calls == {record.call_id: None}
    await store.finish(record.call_id, "worker-a", 1, State.FAILED, FAILURE)
    last, calls = await store.doorbells("gateway-1", last, 3)
    assert [*calls] == [record.call_id]
    assert await store.doorbells("gateway-1", last, 0.01) == (last, {})


async def test_a_doorbell_tells_the_end_of_a_call_as_a_read_would(store: CallStore) -> None:
    record = await enqueue(store, gateway="gateway-1")
    await take(store)
    started = await store.read(record.call_id)
    assert started is not None
    await store.finish(
        record.call_id, "worker-a", 1, State.FAILED, FAILURE, b"why", logs=[Event("log", b"{}")]
    )
    _, calls = await store.doorbells("gateway-1", "0-0", 3)
    ending = calls[record.call_id]
    assert ending is not None
    assert ending.seq == 3, "accepted and a log came before it"
    read = await store.read(record.call_id, after_seq=2)
    assert read is not None
    told = snapshot_at_end(replace(started.record, finished_ms=read.record.finished_ms), ending)
    assert told == read


async def test_a_doorbell_leaves_a_long_end_to_be_read(store: CallStore) -> None:
    record = await enqueue(store, gateway="gateway-1")
    await take(store)
    await store.finish(record.call_id, "worker-a", 1, State.FAILED, FAILURE, b"x" * 10_000)
    assert (await store.doorbells("gateway-1", "0-0", 3))[1] == {record.call_id: None}


async def test_a_gateway_can_join_while_the_call_runs_but_not_afterwards(
    store: CallStore, each_redis: RedisServer
) -> None:
    record = await enqueue(store)
    await take(store)
    assert await store.subscribe(record.call_id, "gateway-2")
    await store.finish(record.call_id, "worker-a", 1, State.FAILED, FAILURE)
    assert [*(await store.doorbells("gateway-2", "0-0", 1))[1]] == [record.call_id]
    assert not await store.subscribe(record.call_id, "gateway-3")
    assert not await store.subscribe("call-unknown", "gateway-3")
    assert each_redis.command("EXISTS", Keys().subscribers(record.call_id)) == ":0"


async def test_an_idle_worker_is_woken_by_a_new_call(store: CallStore) -> None:
    idle = asyncio.create_task(store.orders_or_bell("worker-a", "cpu", Cursor(), 3))
    await asyncio.sleep(0.05)
    await enqueue(store)
    woken = await idle
    assert woken.rang
    assert woken.orders == []
    again = await store.orders_or_bell("worker-a", "cpu", woken.cursor, 0.01)
    assert not again.rang


async def test_a_bell_before_the_wait_is_not_missed(store: CallStore) -> None:
    quiet = await store.orders_or_bell("worker-a", "cpu", Cursor(), 0.01)
    assert not quiet.rang
    await enqueue(store)
    assert (await store.orders_or_bell("worker-a", "cpu", quiet.cursor, 0.01)).rang


async def test_a_deleted_bell_rings_again_for_the_next_call(
    store: CallStore, each_redis: RedisServer
) -> None:
    await enqueue(store)
    cursor = (await store.orders_or_bell("worker-a", "cpu", Cursor(), 1)).cursor
    idle = asyncio.create_task(store.orders_or_bell("worker-a", "cpu", cursor, 3))
    await asyncio.sleep(0.05)
    each_redis.command("DEL", Keys().bell("cpu"))
    await enqueue(store)
    assert (await idle).rang


async def test_a_wait_that_was_cancelled_does_not_hold_up_the_next(store: CallStore) -> None:
    def wait(worker: str, block_s: float) -> asyncio.Task[Wakeup]:
        return asyncio.create_task(store.orders_or_bell(worker, "cpu", Cursor(), block_s))

    full_time = wait("worker-b", 5)  # ends before one that is held up by those that were given up
    for _ in range(3):
        await asyncio.sleep(0.05)
        given_up = wait("worker-a", 5)
        await asyncio.sleep(0.05)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
    short = wait("worker-a", 0.01)
    await asyncio.wait({short, full_time}, return_when=asyncio.FIRST_COMPLETED)
    assert short.done()
    assert not (await short).rang
    full_time.cancel()
    await asyncio.gather(full_time, return_exceptions=True)


async def test_many_events_are_read_in_parts_without_gaps(store: CallStore) -> None:
    record = await enqueue(store)
    await take(store)
    for _ in range(3):
        await store.emit(record.call_id, "worker-a", 1, [Event("log", b"{}")] * 900)
    seen: list[int] = []
    more = True
    while more:
        snapshot = await store.read(record.call_id, after_seq=seen[-1] if seen else 0)
        assert snapshot is not None
        seen += [event.seq for event in snapshot.events]
        more = snapshot.more
    assert seen == list(range(1, 2_702))


async def test_an_unknown_call_reads_as_none(store: CallStore) -> None:
    assert await store.read("call-unknown") is None


async def test_a_worker_is_listed_while_it_beats(store: CallStore) -> None:
    assert await store.beat(worker("worker-b"), 30) == 1
    assert await store.beat(worker("worker-b"), 30) == 2
    await store.beat(worker("worker-a"), 30)
    await store.beat(worker("worker-c"), 0.02)
    await asyncio.sleep(0.05)
    assert await store.workers() == [worker("worker-a"), worker("worker-b")]
    await store.leave("worker-a")
    assert [record.boot for record in await store.workers()] == ["worker-b"]


async def test_a_worker_record_of_another_version_is_passed_over(
    store: CallStore, each_redis: RedisServer
) -> None:
    await store.beat(worker("worker-a"), 30)
    await store.beat(worker("worker-b"), 30)
    each_redis.command("HSET", Keys().worker("worker-a"), "v", "99")
    assert [record.boot for record in await store.workers()] == ["worker-b"]
