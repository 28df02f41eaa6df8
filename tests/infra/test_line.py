"""One connection for everybody: answers reach whoever asked, whatever happens to the others."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable

import pytest
from redis import exceptions

from readie_infra import line
from readie_infra.connecting import CONNECT_TIMEOUT_S, connect
from readie_infra.line import Line
from readie_infra.store import CallStore
from support.flaky_proxy import FlakyProxy
from support.redis_servers import RedisServer


@pytest.fixture
async def shared(each_redis: RedisServer) -> AsyncIterator[Line]:
    opened = Line(connect(each_redis.socket_url).connection_pool)
    yield opened
    await opened.close()


async def test_each_of_many_gets_its_own_answer_over_one_connection(shared: Line) -> None:
    asked = [shared.ask("ECHO", str(number)) for number in range(2_000)]
    *answers, first, second = await asyncio.gather(
        *asked, shared.ask("CLIENT", "ID"), shared.ask("CLIENT", "ID")
    )
    assert answers == [str(number).encode() for number in range(2_000)]
    assert first == second == await shared.ask("CLIENT", "ID")
    assert shared.connections == 1


async def test_an_error_goes_to_who_asked_wrongly(shared: Line) -> None:
    asked = [shared.ask("ECHO", "1"), shared.ask("NONSENSE"), shared.ask("ECHO", "2")]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert answers[::2] == [b"1", b"2"]
    assert isinstance(answers[1], exceptions.ResponseError)


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
async def test_a_cancelled_command_disturbs_no_other(shared: Line, turns: int) -> None:
    await shared.ask("PING")
    asked = [asyncio.create_task(shared.ask("ECHO", str(number))) for number in range(20)]
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in asked[::2]:
        task.cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert answers[1::2] == [str(number).encode() for number in range(1, 20, 2)]
    assert await shared.ask("ECHO", "after") == b"after"


async def test_large_values_do_not_deadlock(shared: Line) -> None:
    value = b"x" * 2_000_000
    await asyncio.gather(*(shared.ask("SET", f"key-{number}", value) for number in range(8)))
    found = await asyncio.gather(*(shared.ask("GET", f"key-{number}") for number in range(8)))
    assert found == [value] * 8


async def test_too_many_waiting_commands_are_refused(
    shared: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shared.ask("PING")
    monkeypatch.setattr(line, "MAX_PENDING", 10)
    answers = await asyncio.gather(*(shared.ask("PING") for _ in range(12)), return_exceptions=True)
    assert sum(isinstance(answer, exceptions.ResponseError) for answer in answers) == 2


async def test_commands_in_flight_are_repeated_when_the_connection_breaks(
    valkey: RedisServer,
) -> None:
    async with FlakyProxy(valkey.socket_path).listening() as proxy:
        shared = Line(connect(proxy.url).connection_pool)
        await shared.ask("PING")
        proxy.lose_next_answer()
        answers = await asyncio.gather(*(shared.ask("ECHO", str(n)) for n in range(50)))
        assert answers == [str(n).encode() for n in range(50)]
        assert proxy.lost == 1
        await shared.close()


async def test_a_wrong_password_is_an_error_and_not_a_wait(
    own_valkey: Callable[..., RedisServer],
) -> None:
    server = own_valkey()
    server.command("CONFIG", "SET", "requirepass", "right")
    wrong = Line(connect(f"redis://:wrong@127.0.0.1:{server.port}/0").connection_pool)
    with pytest.raises(exceptions.AuthenticationError):
        await wrong.ask("PING")
    right = Line(connect(f"redis://:right@127.0.0.1:{server.port}/0").connection_pool)
    assert await right.ask("ECHO", "in") == b"in"
    await wrong.close()
    await right.close()


async def test_a_server_that_stops_reading_holds_nobody_for_ever(
    own_valkey: Callable[..., RedisServer],
) -> None:
    server = own_valkey()
    shared = Line(connect(server.socket_url).connection_pool, timeout_s=1.0)
    await shared.ask("PING")
    os.kill(server.pid, signal.SIGSTOP)
    try:
        value = b"x" * 50_000_000  # more than any buffer between us and it
        asked = [shared.ask("SET", "key", value), shared.ask("PING"), shared.ask("PING")]
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(answer) for answer in answers] == [exceptions.TimeoutError] * 3
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert await shared.ask("ECHO", "again") == b"again"
    await shared.close()


async def test_a_process_that_stood_still_while_it_connected_connects_again(
    valkey: RedisServer,
) -> None:
    shared = Line(connect(valkey.socket_url).connection_pool)
    asked = asyncio.create_task(shared.ask("ECHO", "1"))
    await asyncio.sleep(0)
    time.sleep(CONNECT_TIMEOUT_S + 0.1)  # noqa: ASYNC251 - the loop is to be busy
    assert await asked == b"1"
    await shared.close()


async def test_a_long_backlog_is_no_silence(valkey: RedisServer) -> None:
    shared = Line(connect(valkey.socket_url).connection_pool, timeout_s=1.0)
    padding = "x" * 100_000  # the server answers after each read, and reads less than this
    asked = []
    began = asyncio.get_running_loop().time()
    for _ in range(24):
        asked += [shared.ask("DEBUG", "SLEEP", "0.05"), shared.ask("ECHO", padding)]
    answers = await asyncio.gather(*asked)
    assert answers == [b"OK", padding.encode()] * 24
    assert asyncio.get_running_loop().time() - began > 1.0, "all together take longer"
    await shared.close()


async def test_what_waits_ends_when_the_line_is_closed(shared: Line) -> None:
    waiting = asyncio.create_task(shared.ask("BLPOP", "nothing", 30))
    await asyncio.sleep(0.05)
    await shared.close()
    with pytest.raises(exceptions.RedisError):
        await waiting
    with pytest.raises(exceptions.RedisError, match="closed"):
        await shared.ask("PING")


async def test_waiting_for_doorbells_holds_up_nobody_else(store: CallStore) -> None:
    waiting = [
        asyncio.create_task(store.doorbells(gateway, "0-0", 20)) for gateway in ("one", "two")
    ]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(10):
        assert await store.workers() == []
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
