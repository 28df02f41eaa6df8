import asyncio
from collections.abc import Callable

import pytest
import redis
import redis.asyncio

from support.redis_servers import RedisServer
from support.requirements import closing_line, require_part


def test_both_servers_answer_the_client_over_tcp_and_over_a_unix_socket(
    each_redis: RedisServer,
) -> None:
    for url in (each_redis.url, each_redis.socket_url):
        with redis.Redis.from_url(url, protocol=3) as client:
            client.set("greeting", "hello")
            assert client.get("greeting") == b"hello"


def test_each_test_begins_with_an_empty_server(valkey: RedisServer) -> None:
    with redis.Redis.from_url(valkey.url) as client:
        assert client.dbsize() == 0


async def test_the_async_client_reaches_the_server_over_its_socket(valkey: RedisServer) -> None:
    async with redis.asyncio.Redis.from_url(valkey.socket_url, protocol=3) as client:
        assert await asyncio.wait_for(client.ping(), timeout=60)


def test_a_persistent_server_that_is_killed_and_started_again_has_kept_what_it_acknowledged(
    own_valkey: Callable[..., RedisServer],
) -> None:
    server = own_valkey(persist=True)
    assert server.command("SET", "kept", "yes") == "+OK"
    server.kill()
    server.start()
    assert server.command("STRLEN", "kept") == ":3"


def test_a_missing_part_skips_on_a_laptop_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="get it with a shop"):
        require_part("unicorn", None, "a shop")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="get it with a shop"):
        require_part("unicorn", False, "a shop")


def test_the_closing_line_names_the_parts_that_took_part(valkey: RedisServer) -> None:
    assert "valkey 9." in closing_line()
    assert "unicorn" not in closing_line()
