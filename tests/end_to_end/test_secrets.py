"""Secrets reach the function, and nothing that is stored or shown holds them."""

import os

import pytest

import readie
from readie import remote
from support.redis_servers import RedisServer
from support.stack import Stack

VALUE = "s3cret-of-this-test"

pytestmark = pytest.mark.usefixtures("client")


@remote(secrets={"API_KEY": VALUE})
def length(pause: float = 0.0) -> int:
    import time

    time.sleep(pause)
    return len(os.environ["API_KEY"])


def test_a_secret_is_an_environment_variable_of_the_function() -> None:
    assert length() == len(VALUE)


def test_neither_the_store_nor_the_api_shows_it(
    client: readie.Client, stack: Stack, server: RedisServer
) -> None:
    call = length.spawn(60.0)  # it is looked at while it runs
    shown = stack.get(f"/v1/calls/{call.id}")
    assert shown["options"]["secrets"] == ["API_KEY"]
    assert VALUE not in str(shown)
    stored = server.command("HGET", f"readie:call:{call.id}", "sealed")
    assert stored.startswith("$")
    assert int(stored[1:]) > len(VALUE)
    call.cancel()
    with pytest.raises(readie.ExecutionCancelledError):
        call.get(60)
    gone = server.command("HGET", f"readie:call:{call.id}", "sealed")
    assert gone == "$-1"
