"""Calls of a session come to one worker, one at a time, in order, until the session ends once."""

import asyncio

import pytest

from readie_infra.connecting import connect
from readie_infra.errors import SessionBusyError, SessionEndedError, SessionUnknownError
from readie_infra.store import CallStore, Cursor, Limits
from readie_wire.keys import Keys, new_session_id
from readie_wire.lifecycle import State
from readie_wire.outcome import ErrorKind
from readie_wire.records import CallRecord, SessionRecord
from support.call_records import CHECKPOINT_KEY, SUCCESS, enqueue, new_record, take
from support.redis_servers import RedisServer

WORKER = "worker-a"


async def opened(store: CallStore, token: str = "default", idle_s: float = 300.0) -> str:
    record = SessionRecord(new_session_id(), token, "cpu")
    assert await store.open_session(record, idle_s)
    return record.session_id


async def in_session(store: CallStore, session: str) -> CallRecord:
    return await enqueue(store, new_record(session=session))


async def end_of(store: CallStore, call: CallRecord) -> tuple[State, ErrorKind | None]:
    snapshot = await store.read(call.call_id)
    assert snapshot is not None
    outcome = snapshot.record.outcome
    return snapshot.record.state, outcome.error.kind if outcome and outcome.error else None


async def succeed(store: CallStore, call: CallRecord, session_over: str = "") -> None:
    assert await store.start(call.call_id, call.owner, call.attempt, 60)
    assert await store.finish(
        call.call_id,
        call.owner,
        call.attempt,
        State.SUCCEEDED,
        SUCCESS,
        session_over=session_over,
    )


async def test_calls_come_in_order_and_one_at_a_time(store: CallStore) -> None:
    session = await opened(store)
    first, second, third = [await in_session(store, session) for _ in range(3)]
    taken = await take(store)
    assert taken.call_id == first.call_id
    assert await store.take_session(WORKER, session, ready=True) is None
    await succeed(store, taken)
    for expected in (second, third):
        following = await store.take_session(WORKER, session, ready=True)
        assert following is not None
        assert (following.call_id, following.state) == (expected.call_id, State.RUNNING)
        await succeed(store, following)
    record = await store.read_session(session)
    assert record is not None
    assert (record.served, record.waiting, record.current) == (3, 0, "")


async def test_the_worker_is_told_that_the_next_call_waits(store: CallStore) -> None:
    session = await opened(store)
    await in_session(store, session)
    await succeed(store, await take(store))
    await in_session(store, session)
    woken = await store.orders_or_bell(WORKER, "cpu", Cursor(), 1.0)
    assert [(order.type, order.session) for order in woken.orders] == [("session", session)]


async def test_no_other_worker_gets_a_call_of_the_session(store: CallStore) -> None:
    session = await opened(store)
    await in_session(store, session)
    await succeed(store, await take(store))
    await in_session(store, session)
    assert await store.take_session("worker-b", session, ready=True) is None


async def test_a_first_call_that_is_handed_back_may_go_to_another_worker(store: CallStore) -> None:
    session = await opened(store)
    call = await in_session(store, session)
    taken = await take(store)
    assert await store.release(call.call_id, WORKER, taken.attempt, "it is stopping")
    assert (await take(store, worker="worker-b")).call_id == call.call_id
    record = await store.read_session(session)
    assert record is not None
    assert record.worker == "worker-b"


async def test_a_session_ends_with_the_call_that_its_sandbox_did_not_survive(
    store: CallStore,
) -> None:
    session = await opened(store)
    await in_session(store, session)
    waiting = await in_session(store, session)
    await succeed(store, await take(store), session_over="its sandbox died")
    assert await end_of(store, waiting) == (State.FAILED, ErrorKind.SESSION_ENDED)
    with pytest.raises(SessionEndedError, match="its sandbox died"):
        await in_session(store, session)


async def test_ending_a_session_fails_what_waits_and_cancels_what_runs(store: CallStore) -> None:
    session = await opened(store)
    await in_session(store, session)
    running = await take(store)
    await store.start(running.call_id, WORKER, 1, 60)
    waiting = await in_session(store, session)
    assert await store.end_session(session, "enough")
    assert not await store.end_session(session, "enough")
    assert await end_of(store, waiting) == (State.FAILED, ErrorKind.SESSION_ENDED)
    snapshot = await store.read(running.call_id)
    assert snapshot is not None
    assert (snapshot.record.state, snapshot.record.cancel) == (State.RUNNING, "enough")
    woken = await store.orders_or_bell(WORKER, "cpu", Cursor(), 1.0)
    assert {order.type for order in woken.orders} == {"cancel", "close"}


async def test_ending_a_session_fails_its_first_call_that_has_not_started(store: CallStore) -> None:
    session = await opened(store)
    first = await in_session(store, session)
    taken = await take(store)
    assert await store.end_session(session, "enough")
    assert await end_of(store, first) == (State.FAILED, ErrorKind.SESSION_ENDED)
    assert not await store.start(taken.call_id, WORKER, 1, 60)


async def test_only_its_own_worker_may_end_it_as_a_worker(store: CallStore) -> None:
    session = await opened(store)
    await in_session(store, session)
    await succeed(store, await take(store))
    assert not await store.end_session(session, "died", worker="worker-b")
    assert await store.end_session(session, "died", worker=WORKER)


async def test_an_unknown_session_an_ended_one_and_a_busy_one_are_told_apart(
    valkey: RedisServer,
) -> None:
    store = CallStore(connect(valkey.socket_url), limits=Limits(session_line=2))
    session = await opened(store)
    with pytest.raises(SessionUnknownError):
        await in_session(store, new_session_id())
    with pytest.raises(SessionUnknownError):
        await enqueue(store, new_record(session=session, token="another"))
    for _ in range(3):
        await in_session(store, session)
    with pytest.raises(SessionBusyError, match="2 calls wait"):
        await in_session(store, session)
    await store.end_session(session, "enough")
    with pytest.raises(SessionEndedError, match="enough"):
        await in_session(store, session)
    await store.close()


async def test_a_call_that_would_not_wait_is_refused_by_a_busy_session(store: CallStore) -> None:
    session = await opened(store)
    await in_session(store, session)
    with pytest.raises(SessionBusyError):
        await enqueue(store, new_record(session=session), queue_timeout=0.0)


async def test_a_call_whose_turn_does_not_come_in_time_is_told_that_it_was_busy(
    store: CallStore,
) -> None:
    session = await opened(store)
    await in_session(store, session)
    await succeed(store, await take(store))
    await in_session(store, session)
    running = await store.take_session(WORKER, session, ready=True)
    late = await enqueue(store, new_record(session=session), queue_timeout=0.05)
    await asyncio.sleep(0.1)
    assert (await store.sweep()).expired == [late.call_id]
    assert await end_of(store, late) == (State.EXPIRED, ErrorKind.SESSION_BUSY)
    assert running is not None
    await succeed(store, running)


async def test_an_idle_session_ends_and_says_how_long_it_was_idle(store: CallStore) -> None:
    session = await opened(store, idle_s=0.05)
    busy = await opened(store, idle_s=0.05)
    await in_session(store, busy)
    await asyncio.sleep(0.1)
    assert (await store.sweep()).sessions == [session]
    record = await store.read_session(session)
    assert record is not None
    assert record.ended
    assert record.reason == "it was not used for 0.05 s"


async def test_sessions_of_a_dead_worker_end_but_those_that_had_not_begun_go_on(
    store: CallStore,
) -> None:
    used, fresh = await opened(store), await opened(store)
    await in_session(store, used)
    await succeed(store, await take(store))
    waiting = await in_session(store, used)
    first = await in_session(store, fresh)
    await take(store)
    await store.leave(WORKER)
    assert await end_of(store, waiting) == (State.FAILED, ErrorKind.SESSION_ENDED)
    assert (await take(store, worker="worker-b")).call_id == first.call_id


async def test_a_take_whose_answer_was_lost_is_found_again(store: CallStore) -> None:
    session = await opened(store)
    await in_session(store, session)
    await succeed(store, await take(store))
    second = await in_session(store, session)
    store._open_tickets[WORKER] = "ticket"
    given = await store.take_session(WORKER, session, ready=True)
    store._open_tickets[WORKER] = "ticket"  # as if that had not arrived
    again = await store.take_session(WORKER, session, ready=True)
    assert given is not None
    assert again is not None
    assert given.call_id == again.call_id == second.call_id


async def test_a_line_that_somebody_deleted_is_rebuilt(
    store: CallStore, each_redis: RedisServer
) -> None:
    session = await opened(store)
    await in_session(store, session)
    await succeed(store, await take(store))
    waiting = await in_session(store, session)
    each_redis.command("DEL", Keys().session_calls(session))
    assert (await store.sweep()).rebuilt == [waiting.call_id]
    found = await store.take_session(WORKER, session, ready=True)
    assert found is not None
    assert found.call_id == waiting.call_id


async def test_a_call_that_is_cancelled_while_it_waits_leaves_the_session_as_it_is(
    store: CallStore,
) -> None:
    session = await opened(store)
    await in_session(store, session)
    await succeed(store, await take(store))
    running = await in_session(store, session)
    assert await store.take_session(WORKER, session, ready=True) is not None
    waiting, last = await in_session(store, session), await in_session(store, session)
    assert await store.cancel(waiting.call_id, "not needed") is State.CANCELLED
    record = await store.read_session(session)
    assert record is not None
    assert (record.ended, record.current, record.waiting) == (False, running.call_id, 1)
    assert await store.finish(running.call_id, WORKER, 1, State.SUCCEEDED, SUCCESS)
    following = await store.take_session(WORKER, session, ready=True)
    assert following is not None
    assert following.call_id == last.call_id


async def test_a_session_whose_record_is_deleted_holds_up_nothing_and_leaves_nothing(
    store: CallStore, each_redis: RedisServer
) -> None:
    keys = Keys()
    idle, busy, fresh = [await opened(store, idle_s=0.05) for _ in range(3)]
    await in_session(store, busy)
    running = await take(store, ready=[CHECKPOINT_KEY])
    waiting, first = await in_session(store, busy), await in_session(store, fresh)
    for session in (idle, busy, fresh):
        assert each_redis.command("DEL", keys.session(session)) == ":1"
    await asyncio.sleep(0.1)
    other = await enqueue(store)
    assert (await take(store)).call_id == other.call_id, "not a call of a session that is gone"
    await store.sweep()
    assert {*(await store.sweep()).expired} == {waiting.call_id, first.call_id}
    for call in (waiting, first):
        assert await end_of(store, call) == (State.EXPIRED, ErrorKind.SESSION_ENDED)
    assert await store.finish(running.call_id, WORKER, 1, State.SUCCEEDED, SUCCESS)
    assert await end_of(store, running) == (State.SUCCEEDED, None)
    for session in (idle, busy, fresh):
        assert each_redis.command("EXISTS", keys.session(session)) == ":0"
    assert each_redis.command("EXISTS", keys.sessions) == ":0"


async def test_a_leased_call_of_a_session_without_a_record_can_be_handed_back(
    store: CallStore, each_redis: RedisServer
) -> None:
    session = await opened(store)
    await in_session(store, session)
    taken = await take(store)
    each_redis.command("DEL", Keys().session(session))
    assert await store.release(taken.call_id, WORKER, 1, "full")
    await store.sweep()
    assert (await store.sweep()).expired == [taken.call_id]


async def test_a_session_goes_on_when_the_record_of_its_call_is_deleted(
    store: CallStore, each_redis: RedisServer
) -> None:
    session = await opened(store)
    gone = await in_session(store, session)
    each_redis.command("DEL", Keys().call(gone.call_id))
    following = await in_session(store, session)
    assert (await take(store)).call_id == following.call_id


async def test_a_token_sees_its_own_open_sessions(store: CallStore) -> None:
    mine = [await opened(store), await opened(store)]
    await opened(store, token="another")
    ended = await opened(store)
    await store.end_session(ended, "enough")
    assert {record.session_id for record in await store.sessions("default")} == set(mine)


async def test_there_are_at_most_so_many_sessions(valkey: RedisServer) -> None:
    store = CallStore(connect(valkey.socket_url), limits=Limits(sessions=1))
    record = SessionRecord(new_session_id(), "default", "cpu")
    assert await store.open_session(record)
    assert await store.open_session(record)  # asked again, as after a lost answer
    assert not await store.open_session(SessionRecord(new_session_id(), "default", "cpu"))
    await store.close()
