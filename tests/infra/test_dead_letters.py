"""Calls that came to nothing as often as they may are parked, with the reason, until they are dropped."""

import json

from readie_infra.store import CallStore, DeadLetter, Event
from readie_wire.keys import Keys
from readie_wire.lifecycle import State
from readie_wire.records import CallRecord
from support.call_records import FAILURE, OPTIONS, enqueue, new_record, take
from support.redis_servers import RedisServer


def printed(text: str) -> Event:
    return Event("log", json.dumps({"stream": "stdout", "text": text}).encode())


async def letters(store: CallStore) -> list[DeadLetter]:
    return await store.dead("cpu", "default")


async def parked(store: CallStore) -> CallRecord:
    record = await enqueue(store)
    taken = await take(store)
    await store.start(taken.call_id, taken.owner, taken.attempt, 60)
    last = [printed("first\n"), printed("last\n")]
    assert await store.finish(
        record.call_id, taken.owner, taken.attempt, State.DEAD, FAILURE, logs=last
    )
    return record


async def test_a_parked_call_says_why_and_what_it_printed_last(store: CallStore) -> None:
    record = await parked(store)
    [letter] = await letters(store)
    assert (letter.call_id, letter.function) == (record.call_id, record.function)
    assert (letter.attempts, letter.reason) == (1, "no")
    assert letter.last_words == "first\nlast\n"


async def test_it_keeps_its_payload_and_its_record_until_it_is_dropped(
    store: CallStore, each_redis: RedisServer
) -> None:
    record = await parked(store)
    key = Keys().call(record.call_id)
    assert each_redis.command("TTL", key) == ":-1"
    assert (await store.dead_record(record.call_id)).payload == b"payload"
    assert await store.drop_dead(record.call_id)
    assert not await store.drop_dead(record.call_id)
    assert each_redis.command("TTL", key) != ":-1"
    assert await letters(store) == []


async def test_other_tokens_do_not_see_it(store: CallStore) -> None:
    await parked(store)
    assert await store.dead("cpu", "another") == []


async def test_a_call_that_no_worker_comes_to_start_is_parked(
    short_store: CallStore, each_redis: RedisServer
) -> None:
    record = await enqueue(short_store)
    for _ in range(2):
        await take(short_store)
        each_redis.command("ZADD", Keys().due, "1", record.call_id)
        await short_store.sweep()
    [letter] = await letters(short_store)
    assert letter.reason == "2 workers took it, and none came to start it"


async def test_a_call_whose_worker_is_lost_in_each_run_is_parked(store: CallStore) -> None:
    record = await enqueue(store, new_record(options={**OPTIONS, "retries": 1}))
    for worker in ("worker-a", "worker-b"):
        taken = await take(store, worker=worker)
        await store.start(taken.call_id, worker, taken.attempt, 60)
        await store.leave(worker)
    [letter] = await letters(store)
    assert letter.call_id == record.call_id
    assert letter.reason == "its worker was lost in each run that it was allowed"


async def test_without_reruns_a_lost_call_is_not_parked(store: CallStore) -> None:
    await enqueue(store)
    taken = await take(store)
    await store.start(taken.call_id, "worker-a", 1, 60)
    await store.leave("worker-a")
    assert await letters(store) == []


async def test_a_record_that_nobody_can_decode_is_parked(
    store: CallStore, each_redis: RedisServer
) -> None:
    record = await enqueue(store)
    each_redis.command("HSET", Keys().call(record.call_id), "options", "{")
    good = await enqueue(store)
    assert (await take(store)).call_id == good.call_id
    [letter] = await letters(store)
    assert "cannot read the call's record" in letter.reason
