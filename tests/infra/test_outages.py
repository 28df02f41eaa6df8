"""Redis gone, restarted, silent, read-only: said within seconds, and never a call done twice."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from readie_infra.connecting import connect
from readie_infra.errors import StoreUnavailableError
from readie_infra.store import CallStore, Event
from readie_wire.lifecycle import State
from support.call_records import CHECKPOINT_KEY, SUCCESS, enqueue, offer, take
from support.flaky_proxy import FlakyProxy
from support.redis_servers import RedisServer

SECONDS = 10  # "within seconds", on a busy machine


@pytest.fixture
async def flaky(valkey: RedisServer) -> AsyncIterator[tuple[CallStore, FlakyProxy]]:
    async with FlakyProxy(valkey.socket_path).listening() as proxy:
        store = CallStore(connect(proxy.url))
        await store.health()
        yield store, proxy
        await store.close()


async def test_a_server_that_is_gone_is_reported_within_seconds(tmp_path: Path) -> None:
    store = CallStore(connect(f"unix://{tmp_path}/nobody.sock"))
    started = time.monotonic()
    with pytest.raises(StoreUnavailableError) as refusal:
        await store.take(offer())
    assert refusal.value.reason == "unreachable"
    assert refusal.value.__cause__ is not None
    with pytest.raises(StoreUnavailableError):
        await store.doorbells("gateway-1", "0-0", 3)
    with pytest.raises(StoreUnavailableError):
        await store.health()
    assert time.monotonic() - started < 3 * SECONDS
    await store.close()


async def test_a_server_that_is_silent_is_reported_within_seconds(
    own_valkey: Callable[..., RedisServer],
) -> None:
    server = own_valkey()
    store = CallStore(connect(server.socket_url))
    await enqueue(store)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        with pytest.raises(StoreUnavailableError) as refusal:
            await store.take(offer())
        assert refusal.value.reason == "timeout"
        assert time.monotonic() - started < 2 * SECONDS
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert await store.take(offer()) is not None, "the call that was meant for us, or a new one"
    assert await store.take(offer()) is None
    await store.close()


async def test_after_a_restart_with_its_data_the_calls_go_on(
    own_valkey: Callable[..., RedisServer],
) -> None:
    server = own_valkey(persist=True)
    store = CallStore(connect(server.url))
    running, queued = await enqueue(store, gateway="gateway-1"), await enqueue(store)
    await take(store, ready=[CHECKPOINT_KEY])
    last, _ = await store.doorbells("gateway-1", "0-0", 0.01)
    listening = asyncio.create_task(store.doorbells("gateway-1", last, 3))
    await asyncio.sleep(0.05)
    server.kill()
    with pytest.raises(StoreUnavailableError):
        await listening
    with pytest.raises(StoreUnavailableError):
        await store.emit(running.call_id, "worker-a", 1, [Event("log", b"{}")])
    server.start()
    assert await store.finish(running.call_id, "worker-a", 1, State.SUCCEEDED, SUCCESS, b"1")
    assert [*(await store.doorbells("gateway-1", last, 3))[1]] == [running.call_id]
    assert (await take(store)).call_id == queued.call_id
    await store.close()


async def test_after_a_restart_without_its_data_new_calls_are_served(
    own_valkey: Callable[..., RedisServer],
) -> None:
    server = own_valkey()
    store = CallStore(connect(server.url))
    record = await enqueue(store)
    await take(store)
    server.kill()
    server.start()
    assert not await store.finish(record.call_id, "worker-a", 1, State.FAILED, SUCCESS)
    assert await store.read(record.call_id) is None
    again = await enqueue(store)
    assert (await take(store)).call_id == again.call_id
    await store.close()


async def test_a_replica_that_refuses_writes_is_reported(
    own_valkey: Callable[..., RedisServer],
) -> None:
    primary, replica = own_valkey(), own_valkey()
    store = CallStore(connect(replica.socket_url))
    record = await enqueue(store)
    assert replica.command("REPLICAOF", "127.0.0.1", str(primary.port)) == "+OK"
    try:
        with pytest.raises(StoreUnavailableError) as refusal:
            await store.cancel(record.call_id, "")
        assert refusal.value.reason in {"read_only", "loading"}
        assert any("replica" in warning for warning in (await store.health()).warnings)
    finally:
        replica.command("REPLICAOF", "NO", "ONE")
        await store.close()


async def test_a_primary_that_became_a_replica_is_left_for_the_new_one(
    own_valkey: Callable[..., RedisServer],
) -> None:
    """The name leads to another server after a fail-over; the old connection would stay for ever."""
    old, new = own_valkey(), own_valkey()
    async with FlakyProxy(old.socket_path).listening() as proxy:
        store = CallStore(connect(proxy.url))
        await enqueue(store)
        assert old.command("REPLICAOF", "127.0.0.1", str(new.port)) == "+OK"
        proxy.target = new.socket_path
        with pytest.raises(StoreUnavailableError):
            await enqueue(store)
        record = await enqueue(store)
        assert (await take(store)).call_id == record.call_id
        await store.close()


async def test_a_server_set_up_rightly_has_no_warnings(store: CallStore) -> None:
    healthy = await store.health()
    assert healthy.warnings == ()
    assert healthy.server.split()[0] in {"valkey", "redis"}


async def test_health_names_an_eviction_policy_that_drops_calls(
    own_valkey: Callable[..., RedisServer],
) -> None:
    server = own_valkey()
    store = CallStore(connect(server.socket_url))
    server.command("CONFIG", "SET", "maxmemory", "100mb")
    server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    assert any("noeviction" in warning for warning in (await store.health()).warnings)
    await store.close()


async def test_an_enqueue_whose_answer_is_lost_makes_one_call(
    flaky: tuple[CallStore, FlakyProxy],
) -> None:
    store, proxy = flaky
    proxy.lose_next_answer()
    record = await enqueue(store)
    assert proxy.lost == 1
    assert (await take(store)).call_id == record.call_id
    assert await store.take(offer()) is None


async def test_a_take_whose_answer_is_lost_gives_the_same_call_again(
    flaky: tuple[CallStore, FlakyProxy],
) -> None:
    store, proxy = flaky
    first, second = await enqueue(store), await enqueue(store)
    proxy.lose_next_answer()
    taken = await take(store, ready=[CHECKPOINT_KEY])
    assert proxy.lost == 1
    assert (taken.call_id, taken.attempt, taken.state) == (first.call_id, 1, State.RUNNING)
    assert (await take(store)).call_id == second.call_id


async def test_a_take_that_failed_for_good_is_made_up_for_by_the_next(
    own_valkey: Callable[..., RedisServer],
) -> None:
    server = own_valkey(persist=True)
    async with FlakyProxy(server.socket_path).listening() as proxy:
        store = CallStore(connect(proxy.url))
        first, second = await enqueue(store), await enqueue(store)
        os.kill(server.pid, signal.SIGSTOP)  # the command arrives, its answer comes too late
        try:
            with pytest.raises(StoreUnavailableError):
                await store.take(offer())
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert (await take(store)).call_id == first.call_id
        assert (await take(store)).call_id == second.call_id
        await store.close()


async def test_an_emit_whose_answer_is_lost_adds_its_events_once(
    flaky: tuple[CallStore, FlakyProxy],
) -> None:
    store, proxy = flaky
    record = await enqueue(store)
    await take(store)
    proxy.lose_next_answer()
    assert await store.emit(record.call_id, "worker-a", 1, [Event("log", b"{}")] * 2)
    assert proxy.lost == 1
    snapshot = await store.read(record.call_id)
    assert snapshot is not None
    assert [event.seq for event in snapshot.events] == [1, 2, 3]


async def test_a_start_and_a_finish_whose_answers_are_lost_are_still_true(
    flaky: tuple[CallStore, FlakyProxy],
) -> None:
    store, proxy = flaky
    record = await enqueue(store)
    await take(store)
    proxy.lose_next_answer()
    assert await store.start(record.call_id, "worker-a", 1, 60)
    proxy.lose_next_answer()
    assert await store.finish(record.call_id, "worker-a", 1, State.SUCCEEDED, SUCCESS)
    assert proxy.lost == 2
