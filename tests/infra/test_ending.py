"""How calls end: finish, cancel, time."""

import asyncio
import time

from readie_infra.store import CallStore, Cursor, Event
from readie_wire.keys import Keys
from readie_wire.lifecycle import State
from readie_wire.outcome import ErrorKind
from readie_wire.records import CallRecord
from support.call_records import (
    CHECKPOINT_KEY,
    FAILURE,
    SUCCESS,
    due_between,
    enqueue,
    new_record,
    offer,
    take,
)
from support.redis_servers import RedisServer


async def ended(store: CallStore, call_id: str) -> CallRecord:
    snapshot = await store.read(call_id)
    assert snapshot is not None
    assert snapshot.record.outcome is not None
    assert snapshot.events[-1].type == "result"
    assert snapshot.events[-1].data == b'{"state":"%s"}' % snapshot.record.state.encode()
    return snapshot.record


async def test_the_end_has_the_result_the_last_logs_and_a_whole_receipt(store: CallStore) -> None:
    record = await enqueue(store)
    await take(store)
    assert await store.start(record.call_id, "worker-a", 1, 60)
    assert await store.finish(
        record.call_id,
        "worker-a",
        1,
        State.SUCCEEDED,
        SUCCESS,
        b"\x00result",
        logs=[Event("log", b'{"text":"last words"}')],
    )
    end = await ended(store, record.call_id)
    assert (end.state, end.result) == (State.SUCCEEDED, b"\x00result")
    assert end.outcome is not None
    receipt = end.outcome.receipt
    assert (receipt.call_id, receipt.attempt, receipt.worker_id) == (
        record.call_id,
        1,
        "worker-a",
    )
    assert 0 < receipt.queue_ms <= receipt.total_ms
    snapshot = await store.read(record.call_id, after_seq=1)
    assert snapshot is not None
    assert [(event.seq, event.type) for event in snapshot.events] == [(2, "log"), (3, "result")]


async def test_a_clock_that_is_set_back_makes_no_time_negative(
    store: CallStore, each_redis: RedisServer
) -> None:
    record = await enqueue(store)
    created = Keys().call(record.call_id)
    each_redis.command("HSET", created, "created_us", f"{time.time_ns() // 1000 + 3_600_000_000}")
    await take(store, ready=[CHECKPOINT_KEY])
    assert await store.finish(record.call_id, "worker-a", 1, State.SUCCEEDED, SUCCESS)
    snapshot = await store.read(record.call_id)
    assert snapshot is not None
    assert snapshot.record.outcome is not None
    receipt = snapshot.record.outcome.receipt
    assert (receipt.queue_ms, receipt.total_ms) == (0, 0)


async def test_the_result_lives_as_long_as_the_call_asked(
    store: CallStore, each_redis: RedisServer
) -> None:
    record = await enqueue(store, idempotency=("key-1", "hash"))
    await take(store)
    await store.finish(record.call_id, "worker-a", 1, State.FAILED, FAILURE, result_ttl=0.05)
    await asyncio.sleep(0.1)
    assert await store.read(record.call_id) is None
    assert each_redis.command("EXISTS", Keys().idempotency("default", "key-1")) == ":0"
    assert await store.known([record.call_id]) == set()


async def test_a_call_that_never_started_cannot_succeed(store: CallStore) -> None:
    record = await enqueue(store)
    await take(store)
    assert not await store.finish(record.call_id, "worker-a", 1, State.SUCCEEDED, SUCCESS)
    assert await store.finish(record.call_id, "worker-a", 1, State.FAILED, FAILURE)


async def test_the_same_end_may_be_told_again_but_no_other(store: CallStore) -> None:
    record = await enqueue(store)
    await take(store)
    for _ in range(2):
        assert await store.finish(record.call_id, "worker-a", 1, State.FAILED, FAILURE)
    assert not await store.finish(record.call_id, "worker-a", 1, State.CANCELLED, FAILURE)
    snapshot = await store.read(record.call_id)
    assert snapshot is not None
    assert [event.type for event in snapshot.events] == ["accepted", "result"]


async def test_a_queued_call_is_cancelled_at_once(store: CallStore) -> None:
    record = await enqueue(store)
    assert await store.cancel(record.call_id, "changed my mind") is State.CANCELLED
    end = await ended(store, record.call_id)
    assert end.outcome is not None
    assert end.outcome.error is not None
    assert end.outcome.error.kind is ErrorKind.CANCELLED
    assert "changed my mind" in end.outcome.error.message
    assert await store.take(offer()) is None


async def test_a_leased_call_is_cancelled_at_once_and_its_worker_is_told(store: CallStore) -> None:
    record = await enqueue(store)
    await take(store)
    assert await store.cancel(record.call_id, "") is State.CANCELLED
    woken = await store.orders_or_bell("worker-a", "none", Cursor(), 1)
    assert [(order.type, order.call_id) for order in woken.orders] == [("cancel", record.call_id)]
    assert not await store.start(record.call_id, "worker-a", 1, 60)


async def test_a_running_call_is_cancelled_by_its_worker(store: CallStore) -> None:
    record = await enqueue(store)
    await take(store)
    await store.start(record.call_id, "worker-a", 1, 60)
    assert await store.cancel(record.call_id, "stop") is State.RUNNING
    assert await store.cancel(record.call_id, "stop again") is State.RUNNING
    woken = await store.orders_or_bell("worker-a", "none", Cursor(), 1)
    assert [(order.call_id, order.reason) for order in woken.orders] == [(record.call_id, "stop")]
    assert not await store.emit(record.call_id, "worker-a", 1, [Event("log", b"{}")])
    assert await store.finish(record.call_id, "worker-a", 1, State.CANCELLED, FAILURE)
    assert await store.cancel(record.call_id, "late") is State.CANCELLED


async def test_a_cancelled_call_whose_worker_is_silent_ends_after_the_grace(
    short_store: CallStore,
) -> None:
    record = await enqueue(short_store)
    await take(short_store)
    await short_store.start(record.call_id, "worker-a", 1, 60)
    await short_store.cancel(record.call_id, "stop")
    await asyncio.sleep(0.15)
    assert (await short_store.sweep()).cancelled == [record.call_id]
    assert (await ended(short_store, record.call_id)).state is State.CANCELLED


async def test_an_ended_and_an_unknown_call_cannot_be_cancelled(store: CallStore) -> None:
    record = await enqueue(store)
    await take(store)
    await store.finish(record.call_id, "worker-a", 1, State.FAILED, FAILURE)
    assert await store.cancel(record.call_id, "late") is State.FAILED
    assert await store.cancel("call-unknown", "what") is None


async def test_a_call_that_does_not_wait_is_there_until_a_free_worker_can_have_come(
    store: CallStore, each_redis: RedisServer
) -> None:
    record = await enqueue(store, queue_timeout=0)
    created = await store.read(record.call_id)
    assert created is not None
    assert due_between(each_redis, created.record.created_ms + 200) == 1


async def test_a_call_that_nobody_takes_expires(store: CallStore) -> None:
    record = await enqueue(store, queue_timeout=0.05, gateway="gateway-1")
    await asyncio.sleep(0.1)
    assert await store.take(offer()) is None, "its time is over even before a sweep"
    swept = await asyncio.gather(store.sweep(), store.sweep(), store.sweep())
    assert [call for each in swept for call in each.expired] == [record.call_id]
    end = await ended(store, record.call_id)
    assert end.state is State.EXPIRED
    assert end.outcome is not None
    assert end.outcome.error is not None
    assert end.outcome.error.kind is ErrorKind.EXPIRED
    assert [*(await store.doorbells("gateway-1", "0-0", 1))[1]] == [record.call_id]


async def test_a_running_call_whose_time_is_long_over_is_lost(
    short_store: CallStore, each_redis: RedisServer
) -> None:
    record = await enqueue(short_store, new_record(options={"timeout": 0.1, "memory": 1}))
    await take(short_store)
    await short_store.start(record.call_id, "worker-a", 1, 0.1)
    running = await short_store.read(record.call_id)
    assert running is not None
    over_ms = running.record.started_ms + 100 + 400  # its time, and the grace of this store
    assert due_between(each_redis, over_ms, over_ms) == 1
    await asyncio.sleep(0.6)
    assert (await short_store.sweep()).lost == [record.call_id]
    end = await ended(short_store, record.call_id)
    assert end.outcome is not None
    assert end.outcome.error is not None
    assert end.outcome.error.kind is ErrorKind.WORKER_LOST
    assert end.outcome.receipt.worker_id == "worker-a"
    assert not await short_store.finish(record.call_id, "worker-a", 1, State.SUCCEEDED, SUCCESS)


async def test_a_call_that_outlives_every_lease_is_lost_in_the_end(
    short_store: CallStore,
) -> None:
    record = await enqueue(short_store)
    for _ in range(2):
        await take(short_store)
        await asyncio.sleep(0.6)
        swept = await short_store.sweep()
    assert swept.lost == [record.call_id]


async def test_queueing_time_does_not_run_while_a_worker_holds_the_call(
    short_store: CallStore, each_redis: RedisServer
) -> None:
    record = await enqueue(short_store, queue_timeout=30)
    taken = await take(short_store)
    left_ms = 30_000 - (taken.taken_ms - taken.created_ms)
    await asyncio.sleep(0.6)
    now_ms = int(time.time() * 1000)
    assert (await short_store.sweep()).requeued == [record.call_id]
    assert due_between(each_redis, now_ms + left_ms) == 1
    assert (await take(short_store)).call_id == record.call_id


async def test_a_worker_that_leaves_gives_back_what_it_had_not_started(store: CallStore) -> None:
    first, second = await enqueue(store), await enqueue(store)
    await take(store, ready=[first.choice.key])
    await take(store)
    requeued, lost = await store.leave("worker-a")
    assert (requeued, lost) == ([second.call_id], [first.call_id])
    assert (await ended(store, first.call_id)).state is State.LOST
    assert (await take(store, worker="worker-b")).call_id == second.call_id


async def test_calls_whose_stream_was_deleted_are_queued_again(
    store: CallStore, each_redis: RedisServer
) -> None:
    records = [await enqueue(store) for _ in range(5)]
    each_redis.command("DEL", Keys().calls("cpu", "default"))
    assert await store.take(offer()) is None
    swept = await store.sweep()
    assert sorted(swept.rebuilt) == sorted(record.call_id for record in records)
    assert (await store.sweep()).rebuilt == []
    taken = [(await take(store)).call_id for _ in records]
    assert sorted(taken) == sorted(record.call_id for record in records)
    assert await store.take(offer()) is None


async def test_rebuilding_goes_through_all_calls_a_part_at_a_time(
    store: CallStore, each_redis: RedisServer
) -> None:
    for _ in range(10):
        await enqueue(store)
    each_redis.command("DEL", Keys().calls("cpu", "default"))
    rebuilt = [len((await store.sweep(limit=4)).rebuilt) for _ in range(4)]
    assert rebuilt == [4, 4, 2, 0]
