"""The SDK against what it is for: a real gateway, queue, worker and sandbox."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import readie
from readie._client import using
from support.redis_servers import RedisServer, running_server
from support.scripts import Script, run_script
from support.stack import Stack, running_stack


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    """The stack's own: it beats and sweeps to the end of the run, and others empty theirs."""
    with (
        tempfile.TemporaryDirectory(prefix="rd-", ignore_cleanup_errors=True) as folder,
        running_server("valkey", Path(folder)) as running,
    ):
        yield running


@pytest.fixture(scope="session")
def stack(server: RedisServer) -> Iterator[Stack]:
    """One for all tests that leave it as it was."""
    with (
        tempfile.TemporaryDirectory(prefix="rd-", ignore_cleanup_errors=True) as folder,
        running_stack(server.url, Path(folder)) as running,
    ):
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[readie.Client]:
    """The default client of every function in the test."""
    with readie.Client(stack.url, stack.token) as made, using(made):
        yield made


@pytest.fixture
def script(stack: Stack, tmp_path: Path) -> Callable[[str], Script]:
    """Runs source text as a user's script, with the stack as its service."""

    def run(source: str) -> Script:
        environment = stack.client_environment
        return run_script(source, tmp_path, environment)

    return run
