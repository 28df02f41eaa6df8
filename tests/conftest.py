"""Fixtures that the tests of several components share; each component's own are in its folder."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import pytest

from support.processes import raise_as_interrupt
from support.redis_servers import RedisServer, running_server
from support.requirements import closing_line
from support.s3_servers import S3Server, running_s3

# The same examples in every run: a property that fails in CI fails on a laptop too. Machines are
# busy, so an example has no deadline; the test as a whole has pytest's.
hypothesis.settings.register_profile(
    "fixed", derandomize=True, database=None, deadline=None, max_examples=100, print_blob=True
)
hypothesis.settings.load_profile("fixed")


def pytest_configure() -> None:
    raise_as_interrupt()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(closing_line())


def _short_folder() -> tempfile.TemporaryDirectory[str]:
    """Removed as far as it can be: a child of a killed server may still be writing there."""
    return tempfile.TemporaryDirectory(prefix="rd-", ignore_cleanup_errors=True)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """An own folder with a path short enough for a unix socket (108 bytes), unlike tmp_path."""
    with _short_folder() as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def _valkey_of_the_session() -> Iterator[RedisServer]:
    with (
        _short_folder() as folder,
        running_server("valkey", Path(folder)) as server,
    ):
        yield server


@pytest.fixture(scope="session", params=["valkey", "redis"])
def _each_server_of_the_session(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    if request.param == "valkey":
        yield request.getfixturevalue("_valkey_of_the_session")
        return
    with (
        _short_folder() as folder,
        running_server(request.param, Path(folder)) as server,
    ):
        yield server


@pytest.fixture
def valkey(_valkey_of_the_session: RedisServer) -> RedisServer:
    """A real, empty Valkey that lives as long as the test run. Do not stop it: see own_valkey."""
    _valkey_of_the_session.flush()
    return _valkey_of_the_session


@pytest.fixture
def each_redis(_each_server_of_the_session: RedisServer) -> RedisServer:
    """Runs the test twice: on an empty Valkey and on an empty Redis."""
    _each_server_of_the_session.flush()
    return _each_server_of_the_session


@pytest.fixture
def own_valkey() -> Iterator[Callable[..., RedisServer]]:
    """Starts a Valkey of the test's own, to stop, kill and start again: `own_valkey(persist=True)`."""
    with ExitStack() as stack:

        def start(*, persist: bool = False) -> RedisServer:
            folder = stack.enter_context(_short_folder())
            return stack.enter_context(running_server("valkey", Path(folder), persist=persist))

        yield start


@pytest.fixture(scope="session")
def _s3_of_the_session() -> Iterator[S3Server]:
    with _short_folder() as folder, running_s3(Path(folder)) as server:
        yield server


@pytest.fixture
def s3(_s3_of_the_session: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """A real S3 server that lives as long as the test run; this process's settings lead to it."""
    for name, value in _s3_of_the_session.environment.items():
        monkeypatch.setenv(name, value)
    return _s3_of_the_session
