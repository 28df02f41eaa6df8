"""A Docker engine of the test's own: started by hand, able to pull nothing, gone with the test run.

It has process and mount namespaces of its own, so that killing its first process ends every container
and takes every mount away. Its networks are bridges of this machine; no firewall rule is touched.
"""

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from support.processes import tied
from support.requirements import require_part

START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 60.0
POLL_S = 0.1
# `!reset` and `create_host_path` are from here on.
OLDEST_COMPOSE = (2, 24)
PLUGIN = "/usr/local/lib/docker/cli-plugins"
CGROUPS = Path("/sys/fs/cgroup")
BUILDS = "docker/buildkit"  # where a build's processes are, whatever the engine is told
# Images are unpacked twice as fast, and are gone at once. The limit is far above what they take.
IN_MEMORY = 'mount -t tmpfs -o size=8g tmpfs "$1" && shift && exec "$@"'


@dataclass(frozen=True)
class DockerEngine:
    """``socket`` is the engine's, ``group`` the cgroup of all its containers; `run` runs docker on it."""

    socket: Path
    group: str

    def run(
        self,
        *arguments: str | Path,
        deadline_s: float,
        check: bool = True,
        environment: Mapping[str, str] | None = None,
        stdin: IO[bytes] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Both outputs are in ``stdout``; a failure that is not expected shows them."""
        done = subprocess.run(
            tied("docker", *arguments),
            env={**os.environ, **(environment or {}), "DOCKER_HOST": f"unix://{self.socket}"},
            stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=deadline_s,
        )
        assert not check or done.returncode == 0, f"{arguments}:\n{done.stdout[-8000:]}"
        return done

    def lines(self, *arguments: str) -> list[str]:
        return self.run(*arguments, deadline_s=60).stdout.split("\n")[:-1]


def require_engine() -> None:
    """The parts of an engine, or the test does not go on."""
    usable = sys.platform == "linux" and os.geteuid() == 0
    how = "`apt-get install docker.io`, as root on Linux"
    require_part("docker", usable and _version("dockerd", "--version"), how)
    compose = usable and _version("docker", "compose", "version")
    recent = compose and tuple(map(int, compose.split(".")[:2])) >= OLDEST_COMPOSE
    wanted = ".".join(map(str, OLDEST_COMPOSE))
    how = f"Compose {wanted} or newer as a plugin of docker, in {PLUGIN}"
    require_part("compose", recent and compose, how)
    require_part("mmdebstrap", _version("mmdebstrap", "--version"), "`apt-get install mmdebstrap`")


@contextmanager
def running_engine(folder: Path) -> Iterator[DockerEngine]:
    """An engine that ends with the block, and its containers with it. ``folder`` is its own."""
    engine = DockerEngine(folder / "docker.sock", f"readie-engine-{secrets.token_hex(4)}")
    (folder / "data").mkdir()
    with (folder / "engine.log").open("wb") as log:
        process = subprocess.Popen(
            tied(
                *("unshare", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child"),
                *("sh", "-c", IN_MEMORY, "sh", folder / "data"),
                *("dockerd", f"--host=unix://{engine.socket}", f"--pidfile={folder / 'pid'}"),
                *(f"--data-root={folder / 'data'}", f"--exec-root={folder / 'exec'}"),
                *("--bridge=none", "--iptables=false", "--ip6tables=false"),
                f"--cgroup-parent=/{engine.group}",
            ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + START_DEADLINE_S
        while engine.run("version", check=False, deadline_s=30).returncode != 0:
            text = (folder / "engine.log").read_text(errors="replace")
            assert process.poll() is None, f"the engine ended:\n{text}"
            assert time.monotonic() < deadline, f"the engine does not answer:\n{text}"
            time.sleep(POLL_S)
        yield engine
    finally:
        _end(process)
        for group in (engine.group, BUILDS):
            _remove_groups(group)


def left_behind(
    engine: DockerEngine, containers: Sequence[str], networks: Sequence[str]
) -> list[str]:
    """What is still there of a project that was taken down; ids are those it had."""
    groups = [group for one in containers for group in CGROUPS.glob(f"*/{engine.group}/{one}*")]
    bridges = [Path("/sys/class/net", f"br-{network[:12]}") for network in networks]
    return [
        *engine.lines("ps", "--all", "--quiet"),
        *engine.lines("volume", "ls", "--quiet"),
        *engine.lines("network", "ls", "--quiet", "--filter", "type=custom"),
        *(str(path) for path in (*groups, *bridges) if path.exists()),
    ]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the first process of the engine's namespace: `unshare` ends when the last one has."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    with contextlib.suppress(OSError):  # it may end by itself just now
        for pid in children.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    try:
        process.wait(STOP_DEADLINE_S)
    finally:
        process.kill()


def _remove_groups(name: str) -> None:
    """Empty cgroups, which an engine leaves, the deepest first; version 1 has one in each folder."""
    for top in (CGROUPS / name, *CGROUPS.glob(f"*/{name}")):
        for folder in sorted((top, *top.rglob("*/")), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _version(*command: str) -> str | None:
    """The number in what the command prints about itself; None where it is not there."""
    if shutil.which(command[0]) is None:
        return None
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    found = re.search(r"\d+\.\d+[.\d]*", printed)
    return found[0] if found else None
