"""Which call a worker gets, and that nobody else has it."""

import asyncio

from readie_infra.connecting import connect
from readie_infra.store import CallStore
from readie_wire.keys import Keys
from readie_wire.lifecycle import State
from readie_wire.outcome import ErrorKind
from readie_wire.records import Choice
from support.call_records import (
    CHECKPOINT_KEY,
    MEMORY,
    OPTIONS,
    SUCCESS,
    enqueue,
    new_record,
    offer,
    take,
)
from support.redis_servers import RedisServer


async def test_a_taken_call_carries_all_that_the_worker_needs(store: CallStore) -> None:
    record = await enqueue(store, new_record(needs=("numpy",), imports=("numpy.linalg",)))
    taken = await take(store)
    assert taken.call_id == record.call_id
    assert (taken.state, taken.owner, taken.attempt) == (State.LEASED, "worker-a", 1)
    assert (taken.payload, taken.needs, taken.imports) == (
        b"payload",
        ("numpy",),
        ("numpy.linalg",),
    )
    assert taken.taken_ms >= taken.created_ms


async def test_a_call_starts_with_the_take_where_its_sandbox_is_ready(store: CallStore) -> None:
    await enqueue(store)
    taken = await take(store, ready=["other/checkpoint_1", CHECKPOINT_KEY])
    assert taken.state is State.RUNNING
    assert taken.started_ms > 0


async def test_a_cold_call_matches_no_ready_sandbox(store: CallStore) -> None:
    await enqueue(store, new_record(choice=Choice()))
    assert (await take(store, ready=[CHECKPOINT_KEY])).state is State.LEASED


async def test_a_call_too_big_for_the_free_memory_is_left_for_others(store: CallStore) -> None:
    big = await enqueue(store, new_record(options={"memory": 4 * MEMORY, "timeout": 60}))
    small = await enqueue(store)
    assert (await take(store, memory_free=MEMORY)).call_id == small.call_id
    assert await store.take(offer(memory_free=MEMORY)) is None
    assert (await take(store, memory_free=4 * MEMORY)).call_id == big.call_id


async def test_an_exposed_call_needs_an_isolated_worker(store: CallStore) -> None:
    exposed = await enqueue(store, new_record(exposed=True))
    assert await store.take(offer(exposed_ok=False)) is None
    assert (await take(store, exposed_ok=True)).call_id == exposed.call_id


async def test_calls_of_another_flavor_are_not_seen(store: CallStore) -> None:
    await enqueue(store, new_record(flavor="gpu"))
    assert await store.take(offer(flavor="cpu")) is None
    assert await store.take(offer(flavor="gpu")) is not None


async def test_a_worker_that_drains_or_is_full_gets_nothing(store: CallStore) -> None:
    await enqueue(store)
    assert await store.take(offer(draining=True)) is None
    assert await store.take(offer(slots=0)) is None


async def test_a_flood_of_one_token_does_not_hold_up_another(store: CallStore) -> None:
    for _ in range(50):
        await enqueue(store, new_record(token="flood"))
    await take(store)
    for _ in range(3):
        await enqueue(store, new_record(token="other"))
    order = [(await take(store)).token for _ in range(8)]
    assert order.count("other") == 3
    assert "other" in order[:2]
    assert order[:6].count("flood") == 3


async def test_a_call_that_fits_nowhere_earns_nobody_a_share(store: CallStore) -> None:
    """A token whose call waits for memory stands still; who comes later must not start there."""
    huge = new_record(token="patient", options={**OPTIONS, "memory": 1 << 40})
    await enqueue(store, huge)
    for _ in range(30):
        await enqueue(store, new_record(token="busy"))
    for _ in range(20):
        assert (await take(store, memory_free=1 << 30)).token == "busy"
    for _ in range(10):
        await enqueue(store, new_record(token="late"))
    order = [(await take(store, memory_free=1 << 30)).token for _ in range(10)]
    assert abs(order.count("late") - 5) <= 1
    large = [(await take(store, memory_free=1 << 40)).call_id for _ in range(3)]
    assert huge.call_id in large, "its share is that of the others"


async def test_a_call_handed_back_is_the_first_of_its_token_again(store: CallStore) -> None:
    first = await enqueue(store)
    await enqueue(store)
    taken = await take(store)
    assert await store.release(taken.call_id, "worker-a", 1, "the sandbox would not start")
    again = await take(store, worker="worker-b")
    assert (again.call_id, again.attempt) == (first.call_id, 2)


async def test_many_workers_never_get_the_same_call(each_redis: RedisServer) -> None:
    stores = [CallStore(connect(each_redis.socket_url)) for _ in range(4)]
    records = [await enqueue(stores[0], new_record(token=f"t{i % 5}")) for i in range(60)]

    async def work(number: int) -> list[str]:
        got = []
        while record := await stores[number].take(offer(worker=f"worker-{number}")):
            got.append(record.call_id)
        return got

    taken = await asyncio.gather(*(work(number) for number in range(4)))
    everything = [call for calls in taken for call in calls]
    assert sorted(everything) == sorted(record.call_id for record in records)
    for each in stores:
        await each.close()


async def test_what_nobody_can_decode_is_ended_and_the_next_call_is_taken(
    store: CallStore, each_redis: RedisServer
) -> None:
    broken = await enqueue(store)
    each_redis.command("HSET", Keys().call(broken.call_id), "v", "99")
    garbled = await enqueue(store)
    each_redis.command("HSET", Keys().call(garbled.call_id), "options", "{")
    good = await enqueue(store)
    assert (await take(store)).call_id == good.call_id
    each_redis.command("HSET", Keys().call(broken.call_id), "v", "1")
    snapshot = await store.read(broken.call_id)
    assert snapshot is not None
    assert snapshot.record.state is State.DEAD
    assert snapshot.record.outcome is not None
    assert snapshot.record.outcome.error is not None
    assert snapshot.record.outcome.error.kind is ErrorKind.INVALID_REQUEST
    assert "99" in snapshot.record.outcome.error.message


async def test_a_worker_stopped_past_its_lease_can_do_nothing_more(
    short_store: CallStore,
) -> None:
    record = await enqueue(short_store)
    await take(short_store, worker="stopped")
    await asyncio.sleep(0.6)  # longer than the lease
    assert (await short_store.sweep()).requeued == [record.call_id]
    again = await take(short_store, worker="other")
    call = (record.call_id, "stopped", 1)
    assert not await short_store.start(*call, 60)
    assert not await short_store.emit(*call, [])
    assert not await short_store.release(*call, "late")
    assert not await short_store.finish(*call, State.SUCCEEDED, SUCCESS)
    assert not await short_store.finish(*call, State.FAILED, SUCCESS)
    assert await short_store.start(record.call_id, "other", again.attempt, 60)


async def test_a_lease_by_the_same_worker_but_an_earlier_attempt_is_void(store: CallStore) -> None:
    record = await enqueue(store)
    await take(store)
    await store.release(record.call_id, "worker-a", 1, "again")
    await take(store)
    assert not await store.start(record.call_id, "worker-a", 1, 60)
    assert await store.start(record.call_id, "worker-a", 2, 60)
