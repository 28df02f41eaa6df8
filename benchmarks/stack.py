"""A running Readie, started as a user starts it, and the processes that it consists of."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 60.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Stack:
    """``url`` and ``token`` of the gateway; ``pid`` of the supervisor; ``data`` its folder."""

    url: str
    token: str
    pid: int
    data: Path

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def capture(out: Path, import_sets: Sequence[str], *, runtime: str = "fork") -> None:
    """A generation in ``out`` with one checkpoint for each comma-separated import set."""
    command = [sys.executable, "-m", "readie_pipeline", "capture", "--planner", "fixed"]
    for imports in import_sets:
        command += ["--imports", imports]
    command += ["--with-empty", "--runtime", runtime, "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def running(
    generation: Path | None,
    *,
    runtime: str = "fork",
    tokens: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
) -> Iterator[Stack]:
    """``readie up`` on a free port with its own data folder; ended with Ctrl-C.

    ``tokens`` (``id:secret``) are those it accepts, the first for `Stack.token`; else it makes one.
    Without a generation it makes none either; ``settings`` can name a bucket that it follows.
    """
    with tempfile.TemporaryDirectory(prefix="readie-bench-") as folder:
        data = Path(folder)
        if tokens:
            (data / "token").write_text("\n".join(tokens) + "\n")
        port = free_port()
        command = [sys.executable, "-m", "readie", "up", "--port", str(port)]
        command += ["--data-dir", folder, "--runtime", runtime]
        command += ["--no-warm"] if generation is None else ["--generations", str(generation)]
        process = subprocess.Popen(
            command,
            env={**os.environ, **(settings or {})},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_ready(process, url)
            token = (data / "token").read_text().split()[0].rpartition(":")[2]
            yield Stack(url, token, process.pid, data)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"readie up ended with status {process.returncode}")
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"readie up was not ready within {START_TIMEOUT_S:.0f} s")


@dataclass(frozen=True, slots=True)
class Process:
    """One live process and its processor time so far, in seconds."""

    pid: int
    parent: int
    command: str

    def seconds(self) -> float:
        """User and system time of all its threads; 0 once it has ended."""
        total = 0
        try:
            for thread in Path(f"/proc/{self.pid}/task").iterdir():
                total += int((thread / "schedstat").read_text().split()[0])
        except OSError:
            return 0.0
        return total / 1e9

    def children_seconds(self) -> float:
        """That of its children which have ended and were waited for."""
        fields = _stat(self.pid)
        return (int(fields[13]) + int(fields[14])) / CLOCK_TICKS if fields else 0.0


def descendants(root: int) -> list[Process]:
    """Every live process below ``root``, itself included."""
    children: dict[int, list[int]] = {}
    parents = {root: 0}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents[int(entry.name)] = int(fields[1])
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        todo += children.get(pid, [])
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        found.append(Process(pid, parents[pid], line))
    return found


def _stat(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` from the state on; empty when the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []
