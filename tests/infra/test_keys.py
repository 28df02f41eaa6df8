"""Key names are those of readie_wire, and no key outlives what it belongs to."""

import re
from importlib.resources import files

from readie_infra.connecting import connect
from readie_infra.store import CallStore, Event
from readie_infra.store.steps import load_sources
from readie_wire.keys import Keys
from readie_wire.lifecycle import State
from support.call_records import CHECKPOINT_KEY, FAILURE, SUCCESS, enqueue, new_record, take
from support.redis_servers import RedisServer

# Lua function of the prelude → its twin in Keys.
NAMES = {
    "call_key": "call",
    "events_key": "events",
    "subscribers_key": "subscribers",
    "calls_key": "calls",
    "returned_key": "returned",
    "ready_key": "ready",
    "bell_key": "bell",
    "doorbell_key": "doorbell",
    "control_key": "control",
    "held_key": "held",
    "worker_key": "worker",
    "beat_key": "beat",
    "recent_key": "recent",
    "idempotency_key": "idempotency",
    "session_key": "session",
    "dead_key": "dead",
    "imports_key": "imports",
    "session_calls_key": "session_calls",
}


async def test_the_scripts_name_keys_as_readie_wire_does(each_redis: RedisServer) -> None:
    keys = Keys("p:")
    prelude = (files("readie_infra") / "lua" / "prelude.lua").read_text()
    functions = dict(re.findall(r"local function (\w+_key)\(([^)]*)\)", prelude))
    assert set(functions) == set(NAMES)
    client = connect(each_redis.socket_url)
    for function, parameters in functions.items():
        arguments = [f"the-{name.strip()}" for name in parameters.split(",")]
        called = ", ".join(f"'{argument}'" for argument in arguments)
        named = await client.eval(f"{prelude}\nreturn {function}({called})", 0, "p:")
        assert named.decode() == getattr(keys, NAMES[function])(*arguments)
    both = await client.eval(f"{prelude}\nreturn {{DUE, WORKERS, SESSIONS, NEWS}}", 0, "p:")
    assert [name.decode() for name in both] == [*(keys.due, keys.workers, keys.sessions, keys.news)]
    await client.aclose()


def test_every_step_opens_with_its_flags_and_its_keys() -> None:
    sources = load_sources()
    assert len(sources) >= 15
    for name, source in sources.items():
        assert source.startswith("#!lua"), name
        own = source.split("\n")
        assert sum(line.startswith("#!") for line in own) == 1, name


async def test_when_every_call_has_ended_every_key_ends_by_itself(
    store: CallStore, each_redis: RedisServer
) -> None:
    async def one(token: str) -> str:
        record = await enqueue(
            store,
            new_record(token=token),
            idempotency=(token, "hash"),
            gateway="gateway-1",
        )
        return record.call_id

    finished, failed, lost, cancelled, expired, dropped = [
        await one(f"token-{number}") for number in range(6)
    ]
    for _ in (finished, failed):
        taken = await take(store)
        await store.start(taken.call_id, "worker-a", 1, 60)
        await store.emit(taken.call_id, "worker-a", 1, [Event("log", b"{}")])
        state, outcome = (
            (State.SUCCEEDED, SUCCESS) if taken.call_id == finished else (State.FAILED, FAILURE)
        )
        assert await store.finish(taken.call_id, "worker-a", 1, state, outcome, b"result")
    assert (await take(store, worker="worker-b")).call_id == lost
    await store.start(lost, "worker-b", 1, 60)
    await store.leave("worker-b")
    running = await take(store, worker="worker-c")
    await store.start(running.call_id, "worker-c", 1, 60)
    await store.cancel(cancelled, "not needed")  # its worker never answers
    each_redis.command("ZADD", Keys().due, "1", cancelled)
    each_redis.command("ZADD", Keys().due, "1", expired)
    await store.sweep()
    await store.cancel(dropped, "not needed")

    client = connect(each_redis.socket_url)
    names = [name.decode() async for name in client.scan_iter("*")]
    assert len(names) > 6
    without_end = [name for name in names if await client.ttl(name) == -1]
    assert without_end == []
    await client.aclose()


async def test_a_call_whose_record_is_deleted_leaves_no_key_behind(
    store: CallStore, each_redis: RedisServer
) -> None:
    record = await enqueue(store, gateway="gateway-1")
    await take(store, ready=[CHECKPOINT_KEY])
    each_redis.command("DEL", Keys().call(record.call_id))
    assert not await store.finish(record.call_id, "worker-a", 1, State.SUCCEEDED, SUCCESS)
    each_redis.command("ZADD", Keys().due, "1", record.call_id)
    await store.sweep()
    client = connect(each_redis.socket_url)
    names = [name.decode() async for name in client.scan_iter("*")]
    assert [name for name in names if await client.ttl(name) < 0] == []
    await client.aclose()


async def test_a_queue_without_calls_leaves_no_stream_behind(
    store: CallStore, each_redis: RedisServer
) -> None:
    await enqueue(store)
    await take(store)
    assert each_redis.command("EXISTS", Keys().calls("cpu", "default")) == ":0"
    assert each_redis.command("EXISTS", Keys().ready("cpu")) == ":0"
