"""A call whose run came to nothing is queued again as often as it allows, and no more."""

import time

import pytest

from readie_infra.connecting import connect
from readie_infra.store import CallStore, Event
from readie_wire.keys import Keys
from readie_wire.lifecycle import State
from readie_wire.outcome import ErrorKind
from readie_wire.records import CallRecord, reruns_allowed
from support.call_records import (
    FAILURE,
    OPTIONS,
    SUCCESS,
    due_between,
    enqueue,
    new_record,
    take,
)
from support.redis_servers import RedisServer


def repeatable(retries: int = 1, **changes: object) -> CallRecord:
    return new_record(options={**OPTIONS, "retries": retries}, **changes)


async def retry(store: CallStore, record: CallRecord) -> bool:
    return await store.retry(record.call_id, record.owner, record.attempt, [Event("log", b"{}")])


async def run(store: CallStore) -> CallRecord:
    record = await take(store)
    assert await store.start(record.call_id, record.owner, record.attempt, 60.0)
    return record


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({}, 0),
        ({"retries": 0, "idempotent": False}, 0),
        ({"retries": 3}, 3),
        ({"idempotent": True}, 1),
        ({"retries": 3, "idempotent": True}, 3),
    ],
)
def test_reruns_are_what_the_caller_allows(options: dict[str, object], allowed: int) -> None:
    assert reruns_allowed(options) == allowed


async def test_a_call_runs_again_as_often_as_it_may_and_no_more(store: CallStore) -> None:
    await enqueue(store, repeatable(2))
    for left in (2, 1):
        record = await run(store)
        assert record.reruns == left
        assert await retry(store, record)
        assert not await retry(store, record)
    last = await run(store)
    assert (last.reruns, last.attempt, last.payload) == (0, 3, b"payload")
    assert not await retry(store, last)
    assert await store.finish(last.call_id, last.owner, last.attempt, State.FAILED, FAILURE)
    snapshot = await store.read(last.call_id)
    assert snapshot is not None
    assert [event.type for event in snapshot.events] == ["accepted", "log", "log", "result"]


async def test_without_being_asked_nothing_runs_again(store: CallStore) -> None:
    await enqueue(store)
    assert not await retry(store, await run(store))


async def test_it_is_first_in_its_line_and_has_time_for_it(
    store: CallStore, each_redis: RedisServer
) -> None:
    first = await enqueue(store, repeatable(), queue_timeout=30)
    await enqueue(store)
    now_ms = int(time.time() * 1000)
    assert await retry(store, await run(store))
    assert due_between(each_redis, now_ms + 600_000) == 1
    again = await take(store)
    assert again.call_id == first.call_id


async def test_the_end_of_an_earlier_run_is_void(store: CallStore) -> None:
    await enqueue(store, repeatable())
    first = await run(store)
    assert await retry(store, first)
    second = await run(store)
    for ended in (first, second):
        told = await store.finish(
            ended.call_id, ended.owner, ended.attempt, State.SUCCEEDED, SUCCESS
        )
        assert told == (ended is second)


async def test_a_call_that_is_to_end_does_not_run_again(store: CallStore) -> None:
    record = await enqueue(store, repeatable())
    running = await run(store)
    assert await store.cancel(record.call_id, "not needed") is State.RUNNING
    assert not await retry(store, running)


async def test_what_a_dead_worker_ran_is_lost_or_runs_again(store: CallStore) -> None:
    plain, repeated = await enqueue(store), await enqueue(store, repeatable())
    for _ in range(2):
        await run(store)
    assert await store.leave("worker-a") == ([repeated.call_id], [plain.call_id])
    again = await take(store, worker="worker-b")
    assert (again.call_id, again.attempt, again.reruns) == (repeated.call_id, 2, 0)


async def test_a_rerun_that_nobody_takes_does_not_claim_that_the_call_never_ran(
    store: CallStore, each_redis: RedisServer
) -> None:
    await enqueue(store, repeatable())
    record = await run(store)
    assert await retry(store, record)
    client = connect(each_redis.socket_url)
    await client.zadd(Keys().due, {record.call_id: 1})
    await client.aclose()
    assert (await store.sweep()).expired == [record.call_id]
    snapshot = await store.read(record.call_id)
    assert snapshot is not None
    assert snapshot.record.outcome is not None
    assert snapshot.record.outcome.error is not None
    assert snapshot.record.outcome.error.kind is ErrorKind.WORKER_LOST
