"""Workers say what they hold: it is not given up meanwhile, and they learn what is not theirs."""

import asyncio

import pytest

from readie_infra.connecting import connect
from readie_infra.store import CallStore, Hold, Limits
from readie_infra.store.settling import JUMP_S, Calm
from readie_wire.keys import Keys, new_session_id
from readie_wire.lifecycle import State
from readie_wire.records import CallRecord, SessionRecord
from support.call_records import CHECKPOINT_KEY, SUCCESS, enqueue, new_record, take
from support.redis_servers import RedisServer

WORKER = "worker-a"


async def running_call(store: CallStore, **changes: object) -> CallRecord:
    await enqueue(store, new_record(**changes))
    return await take(store, ready=[CHECKPOINT_KEY])


def overdue(server: RedisServer, call: CallRecord) -> None:
    server.command("ZADD", Keys().due, "1", call.call_id)


async def test_a_running_call_that_is_held_is_not_lost(
    store: CallStore, each_redis: RedisServer
) -> None:
    call = await running_call(store)
    overdue(each_redis, call)
    assert await store.renew(WORKER, [Hold(call.call_id, 1, 30)], []) is not None
    assert (await store.sweep()).lost == []
    overdue(each_redis, call)
    assert (await store.sweep()).lost == [call.call_id]


@pytest.mark.parametrize("attempt", [1, 2])
async def test_a_worker_learns_of_calls_that_are_not_its_own_any_more(
    store: CallStore, attempt: int
) -> None:
    mine, cancelled, finished = [await running_call(store) for _ in range(3)]
    await store.cancel(cancelled.call_id, "not needed")
    await store.finish(finished.call_id, WORKER, 1, State.SUCCEEDED, SUCCESS)
    holds = [Hold(call.call_id, attempt, 1) for call in (mine, cancelled, finished)]
    unwanted = (await store.renew(WORKER, holds, [])).calls
    expected = [cancelled.call_id, finished.call_id]
    assert unwanted == (expected if attempt == 1 else [mine.call_id, *expected])
    assert len((await store.renew("worker-b", holds, [])).calls) == 3


async def test_a_cancelled_call_ends_after_its_grace_however_long_it_is_held(
    short_store: CallStore,
) -> None:
    call = await running_call(short_store)
    await short_store.cancel(call.call_id, "not needed")
    assert (await short_store.renew(WORKER, [Hold(call.call_id, 1, 60)], [])).calls
    await asyncio.sleep(0.15)
    assert (await short_store.sweep()).cancelled == [call.call_id]


async def test_a_worker_learns_of_sessions_that_are_over_or_elsewhere(store: CallStore) -> None:
    sessions = [new_session_id() for _ in range(3)]
    for session in sessions:
        assert await store.open_session(SessionRecord(session, "default", "cpu"))
    mine, ended, untouched = sessions
    for session in (mine, ended):
        await running_call(store, session=session)
    await store.end_session(ended, "enough")
    unknown = new_session_id()
    unwanted = await store.renew(WORKER, [], [mine, ended, untouched, unknown])
    assert unwanted.sessions == [ended, untouched, unknown]


async def test_after_an_outage_workers_get_the_time_to_say_what_they_hold(
    each_redis: RedisServer,
) -> None:
    store = CallStore(connect(each_redis.socket_url), limits=Limits(settle_s=60))
    running, queued = await running_call(store), await enqueue(store)
    leased = await take(store)
    assert leased.call_id == queued.call_id
    expired = await enqueue(store)
    for call in (running, leased, expired):
        overdue(each_redis, call)
    swept = await store.sweep()
    assert (swept.expired, swept.lost, swept.requeued) == ([expired.call_id], [], [])
    await store.close()


def test_calm_begins_anew_with_each_connection() -> None:
    calm = Calm(10)
    assert not calm.lasts(1_000, connection=1, now=0)
    assert not calm.lasts(1_009, connection=1, now=9)
    assert calm.lasts(1_010, connection=1, now=10)
    assert not calm.lasts(1_011, connection=2, now=11)
    assert calm.lasts(1_021, connection=2, now=21)


@pytest.mark.parametrize("jump", [JUMP_S + 1, -JUMP_S - 1, 86_400])
def test_a_clock_that_was_set_is_no_calm(jump: float) -> None:
    calm = Calm(10)
    calm.lasts(1_000, connection=1, now=0)
    assert calm.lasts(1_010, connection=1, now=10)
    assert not calm.lasts(1_011 + jump, connection=1, now=11)
    assert not calm.lasts(1_020 + jump, connection=1, now=20)
    assert calm.lasts(1_021 + jump, connection=1, now=21)


def test_a_clock_that_drifts_and_a_looker_that_stood_still_are_calm() -> None:
    calm = Calm(10)
    calm.lasts(1_000, connection=1, now=0)
    assert calm.lasts(1_012, connection=1, now=10)
    assert calm.lasts(4_612, connection=1, now=3_610)
