"""Measuring shared by worker processes over a real queue."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from readie_pipeline.measure.metadata import load_metadata
from support.made_up_packages import Environment
from support.redis_servers import RedisServer

Start = Callable[..., subprocess.Popen[str]]

LOST_AFTER_S = 4  # a worker speaks every second


def analyze(start: Start, valkey: RedisServer, environment: Environment, data: Path) -> Start:
    arguments = ("analyze", "--data", data, "--python", environment.python, "--repeats", 2)
    return lambda: start(*arguments, "--queue", valkey.url, "--lost-after", LOST_AFTER_S)


def worker(start: Start, valkey: RedisServer, environment: Environment) -> subprocess.Popen[str]:
    return start("worker", "--queue", valkey.url, "--python", environment.python)


def test_two_workers_share_one_run(
    valkey: RedisServer, start: Start, environment: Environment, tmp_path: Path
) -> None:
    for name in ("one", "two", "three"):
        environment.install(name, "1", {f"{name}.py": ""})
    environment.install("bad", "1", {"bad.py": "1/0"})
    workers = [worker(start, valkey, environment) for _ in range(2)]
    run = analyze(start, valkey, environment, tmp_path)()
    _, complaints = run.communicate(timeout=100)
    assert run.returncode == 0, complaints
    metadata = load_metadata((tmp_path / "metadata/cpu.json").read_bytes())
    assert set(metadata.items) == {"one", "two", "three"}
    assert "ZeroDivisionError" in metadata.failures["bad"]
    assert all(process.poll() is None for process in workers)


def test_a_killed_worker_loses_nothing(
    valkey: RedisServer, start: Start, environment: Environment, tmp_path: Path
) -> None:
    note = tmp_path / "started"
    # Whoever imports it first hangs; later ones do not.
    environment.install(
        "sticky",
        "1",
        {
            "sticky.py": f"""
            import pathlib, time
            note = pathlib.Path({str(note)!r})
            if not note.exists():
                note.write_text("")
                time.sleep(600)
            """
        },
    )
    doomed = worker(start, valkey, environment)
    run = analyze(start, valkey, environment, tmp_path)()
    deadline = time.monotonic() + 60
    while not note.exists():
        assert time.monotonic() < deadline, "no worker took the job"
        time.sleep(0.05)
    os.killpg(doomed.pid, signal.SIGKILL)
    worker(start, valkey, environment)
    _, complaints = run.communicate(timeout=100)
    assert run.returncode == 0, complaints
    metadata = load_metadata((tmp_path / "metadata/cpu.json").read_bytes())
    assert set(metadata.items) == {"sticky"}


def test_a_worker_with_other_packages_is_refused_by_name(
    valkey: RedisServer, start: Start, environment: Environment, tmp_path: Path
) -> None:
    environment.install("one", "1", {"one.py": ""})
    other = Environment.create(tmp_path / "other")
    worker(start, valkey, other)
    run = analyze(start, valkey, environment, tmp_path)()
    _, complaints = run.communicate(timeout=100)
    assert run.returncode == 1
    assert "has other packages than where the run was started" in complaints


def test_a_queue_that_is_not_there_is_an_error(
    start: Start, environment: Environment, tmp_path: Path
) -> None:
    run = start("worker", "--queue", "redis://user:secret@127.0.0.1:1/0")
    _, complaints = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "no queue at 127.0.0.1:1/0" in complaints
    assert "secret" not in complaints
