"""``readie up`` as a user runs it, with a data folder of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import readie
from support.processes import tied

DEADLINE_S = 150.0


@dataclass
class Up:
    """One ``readie up`` and what it has printed."""

    process: subprocess.Popen[str]
    data: Path
    log: Path

    @property
    def printed(self) -> str:
        return self.log.read_text()

    @property
    def url(self) -> str:
        return self.printed.partition("running at ")[2].split()[0]

    @property
    def token(self) -> str:
        return (self.data / "token").read_text().strip()

    def client(self) -> readie.Client:
        return readie.Client(self.url, self.token)

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)


@contextmanager
def started(
    data: Path, *options: str, until_running: bool = True, **environment: str
) -> Iterator[Up]:
    """It makes no checkpoints in the background unless ``READIE_NO_WARM`` says so."""
    log = data.parent / f"up-{time.monotonic_ns()}.log"
    command = tied(sys.executable, "-m", "readie", "up", "--port", "0", "--runtime", "fork")
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--data-dir", str(data), *options],
            env={
                **os.environ,
                "READIE_DATA_DIR": str(data.parent / "default"),
                "READIE_NO_WARM": "true",
                **environment,
            },
            stdout=output,
            stderr=output,
            text=True,
        )
    up = Up(process, data, log)
    try:
        if until_running:
            until(
                "it runs",
                lambda: "Ctrl-C stops it" in log.read_text() or process.poll() is not None,
            )
            assert process.poll() is None, up.printed
        yield up
    finally:
        if process.poll() is None:
            up.stop()


def family(pid: int) -> dict[int, int]:
    """The process and all below it: pid → when it started, for the kernel gives pids anew."""
    children: dict[int, list[int]] = {}
    started: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (found := _look_at(int(entry.name))):
            _, parent, started[int(entry.name)] = found
            children.setdefault(parent, []).append(int(entry.name))
    members, waiting = {}, [pid]
    while waiting:
        current = waiting.pop()
        if current in started:
            members[current] = started[current]
        waiting += children.get(current, [])
    return members


def alive(processes: Mapping[int, int]) -> set[int]:
    """Those of a `family` that still run."""
    found = ((pid, started, _look_at(pid)) for pid, started in processes.items())
    return {pid for pid, started, now in found if now and now[0] != "Z" and now[2] == started}


def _look_at(pid: int) -> tuple[str, int, int] | None:
    """Its state, parent and start (ticks since the boot); None when there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1]), int(fields[19])
