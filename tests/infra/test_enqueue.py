"""Accepting calls: once per key, within bounds, all or nothing."""

import asyncio

import pytest

from readie_infra.connecting import connect
from readie_infra.errors import (
    IdempotencyConflictError,
    QueueFullError,
    StoreUnavailableError,
)
from readie_infra.store import CallStore
from readie_wire.keys import Keys
from readie_wire.lifecycle import State
from support.call_records import SUCCESS, enqueue, new_record, offer, take
from support.redis_servers import RedisServer


async def test_an_accepted_call_can_be_read_at_once(store: CallStore) -> None:
    record = await enqueue(store)
    snapshot = await store.read(record.call_id)
    assert snapshot is not None
    assert snapshot.record.state is State.QUEUED
    assert snapshot.record.choice == record.choice
    assert snapshot.record.options == record.options
    assert snapshot.record.created_ms > 0
    assert snapshot.record.payload == b"", "readers other than the worker do not load payloads"
    assert [(event.seq, event.type) for event in snapshot.events] == [(1, "accepted")]


async def test_many_clients_with_one_key_make_one_call(each_redis: RedisServer) -> None:
    stores = [CallStore(connect(each_redis.socket_url)) for _ in range(8)]
    answers = await asyncio.gather(
        *(
            each.enqueue(
                new_record(),
                idempotency=("key-1", "hash"),
                queue_timeout=30,
                gateway="gateway-1",
                queue_limit=100,
            )
            for each in stores
            for _ in range(25)
        )
    )
    assert len({answer.call_id for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == 1
    assert await stores[0].take(offer()) is not None
    assert await stores[0].take(offer()) is None
    for each in stores:
        await each.close()


async def test_a_key_used_for_another_body_is_refused(store: CallStore) -> None:
    first = await enqueue(store, idempotency=("key-1", "hash of one body"))
    with pytest.raises(IdempotencyConflictError, match=first.call_id) as refusal:
        await enqueue(store, idempotency=("key-1", "hash of another"))
    assert refusal.value.call_id == first.call_id


async def test_a_key_belongs_to_its_token(store: CallStore) -> None:
    first = await enqueue(store, new_record(token="alice"), idempotency=("key-1", "hash"))
    second = await enqueue(store, new_record(token="bob"), idempotency=("key-1", "hash"))
    assert first.call_id != second.call_id


async def test_a_key_may_hold_spaces_and_any_text(store: CallStore) -> None:
    key = ("a key: with 'odd' \N{SNOWMAN} text", "hash with spaces")
    first = await enqueue(store, idempotency=key)
    again = await store.enqueue(
        new_record(), idempotency=key, queue_timeout=30, gateway=None, queue_limit=10
    )
    assert (again.call_id, again.created) == (first.call_id, False)


async def test_a_key_whose_call_is_forgotten_makes_a_new_call(
    store: CallStore, each_redis: RedisServer
) -> None:
    first = await enqueue(store, idempotency=("key-1", "hash"))
    each_redis.command("DEL", Keys().call(first.call_id))
    second = await enqueue(store, idempotency=("key-1", "another"))
    assert second.call_id != first.call_id


async def test_a_known_call_rings_the_gateway_that_asked_again(store: CallStore) -> None:
    first = await enqueue(store, idempotency=("key-1", "hash"), gateway="gateway-1")
    await store.enqueue(
        new_record(),
        idempotency=("key-1", "hash"),
        queue_timeout=30,
        gateway="gateway-2",
        queue_limit=100,
    )
    taken = await take(store)
    await store.finish(first.call_id, "worker-a", taken.attempt, State.FAILED, SUCCESS)
    for gateway in ("gateway-1", "gateway-2"):
        _, calls = await store.doorbells(gateway, "0-0", 1)
        assert [*calls] == [first.call_id]


async def test_a_full_queue_refuses_with_the_limit_and_a_time(store: CallStore) -> None:
    for _ in range(3):
        await enqueue(store, queue_limit=3)
    with pytest.raises(QueueFullError) as refusal:
        await enqueue(store, queue_limit=3)
    assert refusal.value.limit == 3
    assert refusal.value.retry_after > 0
    await enqueue(store, new_record(token="other"), queue_limit=3)
    await take(store)
    await enqueue(store, queue_limit=3)


async def test_calls_handed_back_count_towards_the_limit(store: CallStore) -> None:
    await enqueue(store)
    taken = await take(store)
    await store.release(taken.call_id, "worker-a", 1, "no room")
    with pytest.raises(QueueFullError):
        await enqueue(store, queue_limit=1)


async def test_recent_calls_are_listed_newest_first_without_their_bytes(store: CallStore) -> None:
    records = []
    for _ in range(3):
        records.append(await enqueue(store))
        await asyncio.sleep(0.002)  # one millisecond of the server's clock apart
    await enqueue(store, new_record(token="other"))
    listed = await store.recent("default", limit=2)
    assert [record.call_id for record in listed] == [records[2].call_id, records[1].call_id]
    assert {record.payload for record in listed} == {b""}


async def test_a_full_memory_refuses_new_calls_and_lets_the_others_end(
    store: CallStore, each_redis: RedisServer
) -> None:
    queued = [await enqueue(store, gateway="gateway-1") for _ in range(5)]
    running = await take(store, ready=[queued[0].choice.key])
    leased = await take(store)
    each_redis.command("ZADD", Keys().due, "1", queued[3].call_id)
    each_redis.command("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(StoreUnavailableError) as refusal:
            await enqueue(store)
        assert refusal.value.reason == "memory_full"
        assert await store.start(leased.call_id, "worker-a", 1, 60)
        assert await store.finish(
            running.call_id, "worker-a", 1, State.SUCCEEDED, SUCCESS, b"result"
        )
        assert await store.finish(leased.call_id, "worker-a", 1, State.SUCCEEDED, SUCCESS)
        assert await store.cancel(queued[2].call_id, "not needed") is State.CANCELLED
        assert (await store.sweep()).expired == [queued[3].call_id]
        assert (await take(store)).call_id == queued[4].call_id, "or memory never gets free"
        assert await store.subscribe(queued[4].call_id, "gateway-2")
        snapshot = await store.read(running.call_id)
        assert snapshot is not None
        assert snapshot.record.result == b"result"
    finally:
        each_redis.command("CONFIG", "SET", "maxmemory", "0")
