"""A test run leaves no process behind, however it ends."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.embedded import alive, family
from support.processes import tied
from support.repository import ROOT
from support.requirements import require_part

DEADLINE_S = 150.0

# A test module as ours are: a process and a server for all of its tests, and one test that hangs.
MODULE = """
import subprocess, sys, time
from pathlib import Path
import pytest
from support.embedded import alive, family
from support.processes import tied
from support.redis_servers import running_server

FOLDER = Path(__file__).parent

@pytest.fixture(scope="module")
def process():
    with subprocess.Popen(tied(sys.executable, "-c", "import time; time.sleep(1000)")) as process:
        yield process
        (FOLDER / "unwound").touch()
        process.kill()

@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_server("valkey", tmp_path_factory.mktemp("server")) as running:
        yield running

def test_hangs(process, server):
    (FOLDER / "draft").write_text(f"{process.pid} {server.pid}")
    (FOLDER / "draft").rename(FOLDER / "pids")
    time.sleep(1000)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """pytest, with our own conftest, in the middle of its test."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (tmp_path / "test_hanging.py").write_text(MODULE)
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml")]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            tied(*command, "--rootdir", tmp_path, "-p", "no:cacheprovider", tmp_path),
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
    try:
        until(lambda: (tmp_path / "pids").exists() or process.poll() is not None)
        assert process.poll() is None, (tmp_path / "log").read_text()
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_run_that_is_told_to_stop_unwinds_its_fixtures(
    run: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    processes = started(run, tmp_path)
    run.send_signal(signal.SIGTERM)
    run.wait(DEADLINE_S)
    assert (tmp_path / "unwound").exists(), (tmp_path / "log").read_text()
    until(lambda: not alive(processes))


def test_a_run_that_is_killed_takes_what_it_started_with_it(
    run: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    require_part("setpriv", bool(tied()), "Linux with util-linux")
    processes = started(run, tmp_path)
    run.kill()
    run.wait(DEADLINE_S)
    until(lambda: not alive(processes))


def started(run: subprocess.Popen[bytes], folder: Path) -> dict[int, int]:
    """The run and all below it, where both of its processes are."""
    processes = family(run.pid)
    assert {int(pid) for pid in (folder / "pids").read_text().split()} < processes.keys()
    return processes


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
