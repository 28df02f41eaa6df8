"""Captures shared by worker processes over a real queue; killing one loses nothing."""

import os
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from readie_pipeline.cli import cli
from readie_wire.manifest import load_manifest, load_meta
from support.gvisor_kit import real_runsc, sandboxes
from support.interpreters import interpreter_with
from support.redis_servers import RedisServer

Process = subprocess.Popen[str]
Start = Callable[..., Process]

DEADLINE_S = 100.0
LOST_AFTER_S = 5  # a worker speaks every second

# Hangs where it is captured first; it is measured by a program called probe.py before.
STICKY = """
import os, pathlib, sys, time
note = pathlib.Path({note!r})
if "probe" not in str(getattr(sys.modules["__main__"], "__file__", "")) and not note.exists():
    note.with_suffix(".part").write_text(str(os.getpid()))
    note.with_suffix(".part").rename(note)
    time.sleep(600)
"""


def wait_for(condition: Callable[[], object], run: Process | None = None) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert run is None or run.poll() is None, run.communicate()
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


def kill_worker_of(pids: Iterable[int], workers: Sequence[Process]) -> bool:
    """SIGKILL to the worker, and to it alone, that one of the processes works for."""
    ours = {worker.pid for worker in workers}
    for pid in pids:
        try:
            while pid > 1 and pid not in ours:
                stat = Path(f"/proc/{pid}/stat").read_text()
                pid = int(stat.rpartition(") ")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
        if pid in ours:
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def test_two_workers_share_measuring_and_capturing_and_a_killed_one_loses_nothing(
    valkey: RedisServer, start: Start, tmp_path: Path
) -> None:
    note = tmp_path / "captures"
    sticky = textwrap.dedent(STICKY).format(note=str(note))
    python = interpreter_with(tmp_path / "python", {"sticky": sticky})
    out = tmp_path / "generation"

    workers = [
        start("worker", "--queue", valkey.url, "--runtime", "fork", python=python) for _ in range(2)
    ]
    run = start(
        *("capture", "--planner", "fixed", "--imports", "sticky", "--imports", "six"),
        *("--runtime", "fork", "--repeats", 1, "--out", out),
        *("--queue", valkey.url, "--lost-after", LOST_AFTER_S),
        python=python,
    )
    wait_for(note.exists, run)
    assert kill_worker_of([int(note.read_text())], workers)
    _, complaints = run.communicate(timeout=DEADLINE_S)
    assert run.returncode == 0, complaints
    manifest = load_manifest((out / "manifest.json").read_bytes())
    assert [one.imports for one in manifest.checkpoints] == [("sticky",), ("six",)]
    assert load_meta((out / "checkpoints/checkpoint_2/meta.json").read_bytes()).restore_s
    wait_for(lambda: valkey.command("KEYS", "rq:job:*") == "*0")


@pytest.mark.timeout(300)
def test_images_captured_in_gvisor_come_back_through_the_bucket(
    valkey: RedisServer, start: Start, tmp_path: Path
) -> None:
    real_runsc()
    out, bucket = tmp_path / "generation", (tmp_path / "bucket").as_uri()
    shared = ("--queue", valkey.url, "--bucket", bucket, "--runtime", "gvisor")
    workers = [start("worker", *shared, TMPDIR=str(tmp_path)) for _ in range(2)]
    run = start(
        *("capture", "--planner", "fixed", "--with-empty", "--imports", "six", "--repeats", 1),
        *("--out", out, *shared, "--lost-after", LOST_AFTER_S),
        TMPDIR=str(tmp_path),
    )
    wait_for(lambda: kill_worker_of(sandboxes(tmp_path), workers), run)
    _, complaints = run.communicate(timeout=DEADLINE_S)
    assert run.returncode == 0, complaints

    manifest = load_manifest((out / "manifest.json").read_bytes())
    assert [one.imports for one in manifest.checkpoints] == [(), ("six",)]
    for one in manifest.checkpoints:
        meta = load_meta((out / "checkpoints" / one.id / "meta.json").read_bytes())
        assert meta.restore_s is not None
        assert meta.bytes_on_disk == sum(
            (out / "checkpoints" / one.id / file.path).stat().st_size for file in meta.image_files
        )
    assert sandboxes(tmp_path) == []


def test_a_worker_that_captures_something_else_is_refused_by_name(
    valkey: RedisServer, start: Start, tmp_path: Path
) -> None:
    other = interpreter_with(tmp_path / "python", {})
    [site_packages] = (tmp_path / "python").glob("lib/python*/site-packages")
    info = site_packages / "odd-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1\n")
    start("worker", "--queue", valkey.url, "--runtime", "fork", python=other)
    run = start(
        *("capture", "--planner", "fixed", "--with-empty", "--runtime", "fork"),
        *("--out", tmp_path / "generation", "--queue", valkey.url),
    )
    _, complaints = run.communicate(timeout=DEADLINE_S)
    assert run.returncode == 1
    refusal = f"the worker on {os.uname().nodename} cannot take part: its set of packages is "
    assert refusal in complaints


@pytest.mark.parametrize("command", [["worker"], ["capture", "--out", "out"]])
def test_gvisor_captures_by_workers_need_a_bucket(command: list[str]) -> None:
    queue = ["--queue", "redis://127.0.0.1:1", "--runtime", "gvisor"]
    done = CliRunner().invoke(cli, [*command, *queue])
    assert done.exit_code == 2
    assert "comes back through a bucket: give --bucket" in done.output
