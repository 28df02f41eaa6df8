"""Who gets which call first: weights, calls too large for what is free, calls of another flavor."""

import asyncio

from readie_infra.connecting import connect
from readie_infra.store import CallStore, Limits
from readie_wire.records import CallRecord
from support.call_records import OPTIONS, enqueue, new_record, offer, take
from support.redis_servers import RedisServer

GIB = 1 << 30


def weighted(token: str, priority: int) -> CallRecord:
    return new_record(token=token, options={**OPTIONS, "priority": priority})


def sized(gib: int) -> CallRecord:
    return new_record(options={**OPTIONS, "memory": gib * GIB})


def placing(valkey: RedisServer, **limits: float) -> CallStore:
    return CallStore(connect(valkey.socket_url), limits=Limits(**limits))  # type: ignore[arg-type]


async def test_a_token_gets_twice_the_share_for_each_step_of_priority(store: CallStore) -> None:
    for _ in range(30):
        await enqueue(store, weighted("plain", 0))
        await enqueue(store, weighted("urgent", 1))
        await enqueue(store, weighted("later", -1))
    order = [(await take(store)).token for _ in range(28)]
    counts = [order.count(token) for token in ("urgent", "plain", "later")]
    assert all(abs(count - due) <= 1 for count, due in zip(counts, (16, 8, 4), strict=True))


async def test_a_call_that_is_passed_by_for_long_gets_a_worker_of_its_own(
    valkey: RedisServer,
) -> None:
    patient, store = placing(valkey, skipped_s=60), placing(valkey, skipped_s=0.001)
    room = {"memory": 4 * GIB, "memory_free": 2 * GIB}
    large = await enqueue(store, sized(4))
    await enqueue(store, sized(1))
    await asyncio.sleep(0.02)
    assert (await take(patient, **room)).call_id != large.call_id  # not skipped for long yet
    small = await enqueue(store, sized(1))
    assert await store.take(offer(**room)) is None  # it makes room now
    assert (await take(store, worker="worker-b", **room)).call_id == small.call_id
    free = {"memory": 4 * GIB, "memory_free": 4 * GIB}
    assert (await take(store, **free)).call_id == large.call_id
    await patient.close()
    await store.close()


async def test_room_is_made_for_a_bounded_time_and_once(valkey: RedisServer) -> None:
    store = placing(valkey, skipped_s=0.001, kept_s=0.1)
    room = {"memory": 4 * GIB, "memory_free": 2 * GIB}
    await enqueue(store, sized(4))
    small = await enqueue(store, sized(1))
    await asyncio.sleep(0.02)
    assert await store.take(offer(**room)) is None
    await asyncio.sleep(0.15)
    assert (await take(store, **room)).call_id == small.call_id
    await store.close()


async def test_nobody_makes_room_for_what_never_fits(valkey: RedisServer) -> None:
    store = placing(valkey, skipped_s=0.001)
    await enqueue(store, sized(8))
    small = await enqueue(store, sized(1))
    await asyncio.sleep(0.02)
    assert (await take(store, memory=4 * GIB, memory_free=2 * GIB)).call_id == small.call_id
    await store.close()


async def test_a_gpu_worker_takes_a_cpu_call_that_nobody_else_takes(valkey: RedisServer) -> None:
    patient, store = placing(valkey, spill_s=60), placing(valkey, spill_s=0.001)
    gpu = {"worker": "worker-gpu", "flavor": "gpu", "spills_from": "cpu"}
    call = await enqueue(store)
    await asyncio.sleep(0.02)
    assert await patient.take(offer(**gpu)) is None  # a free cpu worker may still come
    assert (await take(store, **gpu)).call_id == call.call_id
    await patient.close()
    await store.close()


async def test_its_own_calls_come_first_and_a_demanded_flavor_is_kept(valkey: RedisServer) -> None:
    store = placing(valkey, spill_s=0.001)
    gpu = {"worker": "worker-gpu", "flavor": "gpu", "spills_from": "cpu"}
    await enqueue(store, new_record(options={**OPTIONS, "flavor": "cpu"}))
    other = await enqueue(store)
    own = await enqueue(store, new_record(flavor="gpu"))
    await asyncio.sleep(0.02)
    assert (await take(store, **gpu)).call_id == own.call_id
    assert (await take(store, **gpu)).call_id == other.call_id
    assert await store.take(offer(**gpu)) is None
    await store.close()


async def test_a_spilled_call_that_is_handed_back_is_a_cpu_call_again(valkey: RedisServer) -> None:
    store = placing(valkey, spill_s=0.001)
    call = await enqueue(store)
    await asyncio.sleep(0.02)
    taken = await take(store, worker="worker-gpu", flavor="gpu", spills_from="cpu")
    assert await store.release(call.call_id, "worker-gpu", taken.attempt, "it stops")
    assert (await take(store)).call_id == call.call_id
    await store.close()
