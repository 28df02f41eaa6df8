"""A worker that stops beating is dead, and its calls are told so; an outage kills nobody."""

import asyncio

from readie_infra.connecting import connect
from readie_infra.store import CallStore, Limits
from readie_infra.store.pulses import Pulses
from readie_wire.keys import Keys
from readie_wire.lifecycle import State
from readie_wire.records import WorkerRecord
from support.call_records import CHECKPOINT_KEY, SUCCESS, enqueue, take
from support.redis_servers import RedisServer

SILENCE_S = 15.0


def worker(boot: str) -> WorkerRecord:
    return WorkerRecord(boot, "cpu", "fork", "none", "3.11.7", 3, 2, 2, 8 << 30, 8 << 30)


def look_each_second(pulses: Pulses, beats: list[int], start: float = 0.0) -> list[bool]:
    """Is worker ``a`` dead, as seen at each of these seconds?"""
    return [
        "a" in pulses.dead({"a": count}, 1, start + second) for second, count in enumerate(beats)
    ]


def test_a_worker_is_dead_after_the_silence_and_not_before() -> None:
    seen = look_each_second(Pulses(SILENCE_S), [7] * 17)
    assert seen == [False] * 15 + [True] * 2


def test_a_beat_in_between_starts_the_silence_anew() -> None:
    seen = look_each_second(Pulses(SILENCE_S), [7] * 14 + [8] * 16)
    assert seen == [False] * 29 + [True]


def test_a_counter_that_expired_or_began_anew_is_a_change_like_any_other() -> None:
    assert not any(look_each_second(Pulses(SILENCE_S), [7] * 14 + [0] * 15))


def test_a_new_connection_makes_nobody_older() -> None:
    pulses = Pulses(SILENCE_S)
    assert not any(look_each_second(pulses, [7] * 15))
    assert pulses.dead({"a": 7}, 2, 15.0) == []
    assert pulses.dead({"a": 7}, 2, 16.0) == []


def test_a_looker_that_stood_still_kills_nobody() -> None:
    pulses = Pulses(SILENCE_S)
    assert pulses.dead({"a": 7}, 1, 0.0) == []
    assert pulses.dead({"a": 7}, 1, 100.0) == []


def test_who_left_and_came_back_starts_anew() -> None:
    pulses = Pulses(SILENCE_S)
    assert not any(look_each_second(pulses, [7] * 14))
    assert pulses.dead({}, 1, 14.0) == []
    assert pulses.dead({"a": 7}, 1, 16.0) == []


async def test_the_calls_of_a_dead_worker_are_lost_or_queued_again(
    each_redis: RedisServer,
) -> None:
    # Long enough that a sweep on a busy machine comes around twice within half of it.
    store = CallStore(connect(each_redis.socket_url), limits=Limits(silence_s=1.0))
    running = await enqueue(store, gateway="gateway-1")
    leased, of_the_living = await enqueue(store), await enqueue(store)
    await take(store, worker="dead", ready=[CHECKPOINT_KEY])
    await take(store, worker="dead")
    await take(store, worker="alive", ready=[CHECKPOINT_KEY])
    await store.beat(worker("dead"), 30)
    lost: list[str] = []
    requeued: list[str] = []
    async with asyncio.timeout(30):
        while not lost:
            await store.beat(worker("alive"), 30)
            swept = await store.sweep()
            lost += swept.lost
            requeued += swept.requeued
            await asyncio.sleep(0.05)
    assert (lost, requeued) == ([running.call_id], [leased.call_id])
    assert [record.boot for record in await store.workers()] == ["alive"]
    assert [*(await store.doorbells("gateway-1", "0-0", 1))[1]] == [running.call_id]
    assert not await store.finish(running.call_id, "dead", 1, State.SUCCEEDED, SUCCESS)
    assert await store.finish(of_the_living.call_id, "alive", 1, State.SUCCEEDED, SUCCESS)
    await store.close()


async def test_the_counter_of_beats_outlives_the_record_and_so_the_silence_counts_once(
    each_redis: RedisServer,
) -> None:
    keys = Keys()
    store = CallStore(connect(each_redis.socket_url), keys)
    await store.beat(worker("dead"), 0.01)
    await asyncio.sleep(0.02)
    assert each_redis.command("EXISTS", keys.worker("dead")) == ":0"
    assert each_redis.command("EXISTS", keys.beat("dead")) == ":1"
    left_ms = int(each_redis.command("PTTL", keys.beat("dead")).removeprefix(":"))
    assert left_ms > 4 * SILENCE_S * 1000
    await store.close()


async def test_a_worker_whose_record_expired_is_still_found_dead(
    each_redis: RedisServer,
) -> None:
    store = CallStore(connect(each_redis.socket_url), limits=Limits(silence_s=1.0))
    running = await enqueue(store)
    await take(store, worker="dead", ready=[CHECKPOINT_KEY])
    await store.beat(worker("dead"), 0.01)
    await asyncio.sleep(0.02)
    assert await store.workers() == []
    lost: list[str] = []
    async with asyncio.timeout(30):
        while not lost:
            lost += (await store.sweep()).lost
            await asyncio.sleep(0.05)
    assert lost == [running.call_id]
    await store.close()
