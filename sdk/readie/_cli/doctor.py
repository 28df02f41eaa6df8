"""``readie doctor``: what this machine can do, what is missing, and how to get it."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from readie import _settings
from readie._cli import installed, valkey
from readie._client import Client
from readie._errors import ReadieError

PROBE_S = 10.0  # for a program to tell its version
ENOUGH_DISK = 5 << 30  # bytes: a generation of a few checkpoints, raw
ENOUGH_SHM = 64 << 20  # bytes: below this, shared memory of worker pools fails in odd ways
OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True, slots=True)
class Finding:
    """``good`` is None for something that is optional and missing."""

    part: str
    good: bool | None
    text: str
    remedy: str = ""


def examine() -> None:
    """Print a table; exit status 1 when calls cannot be run here at all."""
    findings = [finding for check in CHECKS for finding in check()]
    table = Table("", "part", title="This machine")
    table.add_column("what is here", overflow="fold")
    table.add_column("how to get it", overflow="fold")
    for finding in findings:
        mark = {True: "[green]ok[/]", False: "[red]no[/]", None: "[yellow]--[/]"}[finding.good]
        table.add_row(mark, finding.part, finding.text, finding.remedy)
    Console().print(table)
    if any(finding.good is False for finding in findings):
        click.echo("Readie cannot run calls here before what is marked `no` is mended.")
        sys.exit(1)


def _python() -> Iterator[Finding]:
    wanted = ".".join(map(str, OLDEST_PYTHON))
    good = sys.version_info[:2] >= OLDEST_PYTHON
    text = f"{platform.python_version()} at {sys.executable}"
    yield Finding("Python", good, text, "" if good else f"Python {wanted} or newer")


def _servers() -> Iterator[Finding]:
    missing = installed.missing_libraries()
    text = f"missing: {', '.join(missing)}" if missing else "gateway and worker can be started"
    yield Finding("servers", not missing, text, installed.HOW_TO_GET if missing else "")


def _pipeline() -> Iterator[Finding]:
    missing = installed.missing_for_pipeline()
    text = f"missing: {', '.join(missing)}" if missing else "checkpoints can be made here"
    remedy = installed.HOW_TO_GET_PIPELINE if missing else ""
    yield Finding("pipeline", not missing or None, text, remedy)


def _queue() -> Iterator[Finding]:
    server, passed_over = valkey.find_server()
    text = str(server) if server is not None else "no Valkey or Redis"
    notes = "; ".join([text, *passed_over])
    yield Finding("queue", server is not None, notes, "" if server else valkey.HOW_TO_GET)


def _fork() -> Iterator[Finding]:
    good = hasattr(os, "fork")
    text = "checkpoints are forked; no isolation: for your own code"
    yield Finding(
        "fork runtime", good, text if good else "no fork here", "" if good else "Linux or macOS"
    )


def _gvisor() -> Iterator[Finding]:
    if sys.platform != "linux" or platform.machine() not in {"x86_64", "AMD64"}:
        text = f"{sys.platform} on {platform.machine()}"
        yield Finding("gvisor runtime", None, text, "Linux on x86-64; use fork meanwhile")
        return
    runsc = shutil.which("runsc")
    problems = []
    if runsc is None:
        problems.append("no runsc on the PATH")
    elif (version := _first_line([runsc, "--version"])) is None:
        problems.append(f"{runsc} does not run")
    if os.geteuid() != 0:
        problems.append("not root")
    if problems:
        remedy = "install gVisor's runsc, and start the worker as root"
        yield Finding("gvisor runtime", None, "; ".join(problems), remedy)
    else:
        # A worker tests it before it trusts it: some builds crash now and then.
        yield Finding("gvisor runtime", True, f"{version}; a worker tests it when it starts")


def _docker() -> Iterator[Finding]:
    docker = shutil.which("docker")
    text = _first_line([docker, "version", "--format", "{{.Server.Version}}"]) if docker else None
    if text is None:
        text = "no engine answers" if docker else "no docker on the PATH"
        yield Finding("Docker", None, text, "needed only for root filesystems from images")
    else:
        yield Finding("Docker", True, f"engine {text}")


def _cgroups() -> Iterator[Finding]:
    root = Path("/sys/fs/cgroup")
    if not root.is_dir():
        yield Finding(
            "cgroups", None, "none", "memory limits need Linux; the fork runtime has rlimits"
        )
        return
    version = "v2" if (root / "cgroup.controllers").exists() else "v1"
    memory = root if version == "v2" else root / "memory"
    writable = os.access(memory, os.W_OK)
    text = f"{version}, {'writable' if writable else 'not writable'}"
    yield Finding("cgroups", writable or None, text, "" if writable else "run the worker as root")


def _space() -> Iterator[Finding]:
    folder = _settings.data_folder()
    present = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(present).free
    good = free >= ENOUGH_DISK or None
    remedy = "" if good else "another folder: readie up --data-dir"
    yield Finding("disk", good, f"{free / 1e9:.1f} GB free for {folder}", remedy)
    shared = Path("/dev/shm")  # noqa: S108 - looked at, not written to
    if shared.is_dir():
        size = shutil.disk_usage(shared).total
        enough = size >= ENOUGH_SHM or None
        remedy = "" if enough else "give the container a larger one: --shm-size"
        yield Finding("shared memory", enough, f"{size / 1e6:.0f} MB", remedy)


def _service() -> Iterator[Finding]:
    try:
        with Client() as client:
            workers = client.workers()
            runtimes = ", ".join(sorted({str(worker.get("runtime")) for worker in workers}))
            text = f"{client.url}: {len(workers)} workers ({runtimes or 'none'})"
            yield Finding("service", bool(workers) or None, text)
    except ReadieError as error:
        yield Finding("service", None, str(error).partition(":")[0], "readie up, or set READIE_URL")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python,
    _servers,
    _pipeline,
    _queue,
    _fork,
    _gvisor,
    _docker,
    _cgroups,
    _space,
    _service,
)


def _first_line(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().partition("\n")[0] or None
