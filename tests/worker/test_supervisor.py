"""A worker that is killed or stopped leaves no sandbox behind: real workers, real sandboxes."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from readie_worker.supervision import Supervision
from support.gvisor_kit import real_runsc
from support.processes import tied
from support.redis_servers import RedisServer
from support.stack import Stack, running_stack

SURELY_S = 60.0
# Seconds: an argument that no other process of this machine has, of another run of the tests either.
NAP = str(30_000_000 + os.getpid())

# A function that ends by no means of its own, with a child in a session of its own.
SLEEPER = f"""
import subprocess, time, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "{NAP}"], start_new_session=True)
time.sleep({NAP})
"""


def until(what: str, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + SURELY_S
    while not holds():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


def processes_naming(word: str) -> set[int]:
    """Living processes whose command line or first environment holds the word."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue  # it is gone
        if word.encode() in text:  # both are empty for the dead that nobody has collected
            found.add(int(entry.name))
    return found


def spawn(stack: Stack, source: str) -> str:
    request = urllib.request.Request(
        f"{stack.url}/v1/invoke",
        data=json.dumps({"source": source}).encode(),
        headers={
            "Authorization": f"Bearer {stack.token}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Prefer": "respond-async",
        },
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["call_id"])


def sandbox_processes(stack: Stack) -> set[int]:
    """Everything that belongs to the worker's sandboxes: zygotes, executors, kernels, children."""
    own = {process.pid for process in (*stack.workers, stack.gateway) if process is not None}
    return (processes_naming(str(stack.folder / "sandboxes")) | processes_naming(NAP)) - own


@contextmanager
def with_a_sleeping_call(
    valkey: RedisServer, folder: Path, runtime: str, **settings: str
) -> Iterator[Stack]:
    """A stack with one call that sleeps in a sandbox, next to sandboxes that wait."""
    network = {"READIE_NETWORK": "none"} if runtime == "gvisor" else {}
    settings = {"READIE_RUNTIME": runtime, **network, **settings}
    with running_stack(valkey.url, folder, settings=settings) as stack:
        call = spawn(stack, SLEEPER)
        until("it runs", lambda: (stack.get(f"/v1/calls/{call}") or {}).get("state") == "running")
        if runtime == "fork":  # no process inside a gVisor sandbox is one of the host's
            until("its child sleeps", lambda: processes_naming(NAP))
        assert sandbox_processes(stack)
        yield stack


def kill(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()


RUNTIMES = ["fork", "gvisor"]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_sandboxes_end_with_a_worker_that_was_killed(
    valkey: RedisServer, short_path: Path, runtime: str
) -> None:
    if runtime == "gvisor":
        real_runsc()
    with with_a_sleeping_call(valkey, short_path, runtime) as stack:
        kill(stack.workers.pop())
        until("all are gone", lambda: not sandbox_processes(stack))
        if runtime == "gvisor":
            until("so is what they held", lambda: not [*short_path.glob("sandboxes/gvisor-*")])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_sandboxes_of_a_stopped_worker_end_and_it_serves_on_when_it_comes_back(
    valkey: RedisServer, short_path: Path, runtime: str
) -> None:
    if runtime == "gvisor":
        real_runsc()
    with with_a_sleeping_call(valkey, short_path, runtime, READIE_BEAT="0.6") as stack:
        worker = stack.workers[0]
        worker.send_signal(signal.SIGSTOP)
        try:
            until("all are gone", lambda: not sandbox_processes(stack))
        finally:
            worker.send_signal(signal.SIGCONT)
        call = spawn(stack, "result = 6 * 7")
        until(
            "it serves",
            lambda: (stack.get(f"/v1/calls/{call}/result?wait=1") or {}).get("value") == 42,
        )


@pytest.fixture
def supervision() -> Iterator[Supervision]:
    supervision = Supervision(silence_s=1.0)
    supervision.start()
    yield supervision
    supervision.close()


@pytest.fixture
def ward() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a child that ignores everything but SIGKILL."""
    code = "import subprocess, time; subprocess.Popen(['sleep', '1000']); time.sleep(1000)"
    process = subprocess.Popen(tied(sys.executable, "-c", code))
    yield process
    process.kill()
    process.wait()


def test_a_worker_that_beats_keeps_its_sandboxes(ward: subprocess.Popen[bytes]) -> None:
    supervision = Supervision(silence_s=2.5)  # a busy machine may hold up a beat for a second
    supervision.start()
    supervision.process(ward.pid)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        supervision.beat()
        time.sleep(0.05)
    assert ward.poll() is None
    supervision.close()


def test_silence_before_the_first_beat_is_a_worker_that_starts(
    supervision: Supervision, ward: subprocess.Popen[bytes]
) -> None:
    supervision.process(ward.pid)
    with pytest.raises(subprocess.TimeoutExpired):
        ward.wait(3)


def test_silence_after_a_beat_ends_them(
    supervision: Supervision, ward: subprocess.Popen[bytes]
) -> None:
    supervision.process(ward.pid)
    supervision.beat()
    assert ward.wait(SURELY_S) == -signal.SIGKILL


def test_a_supervisor_that_was_killed_is_replaced_and_knows_what_its_forerunner_knew(
    supervision: Supervision, ward: subprocess.Popen[bytes]
) -> None:
    supervision.process(ward.pid)
    first = supervision.pid
    os.kill(first, signal.SIGKILL)

    def replaced() -> bool:
        supervision.beat()
        return supervision.pid != first

    until("another one is there", replaced)
    assert ward.wait(SURELY_S) == -signal.SIGKILL


def test_after_a_goodbye_nothing_is_ended(ward: subprocess.Popen[bytes]) -> None:
    supervision = Supervision(silence_s=1.0)
    supervision.start()
    supervision.process(ward.pid)
    supervision.beat()
    supervision.close()
    with pytest.raises(subprocess.TimeoutExpired):
        ward.wait(2)
