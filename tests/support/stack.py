"""A whole Readie of real processes: gateway and workers as an operator starts them, on one Redis."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from support.ports import free_port
from support.processes import tied

START_DEADLINE_S = 150.0
STOP_DEADLINE_S = 45.0
CALL_DEADLINE_S = 60.0
POLL_S = 0.05


@dataclass
class Stack:
    """``url`` and ``token`` are what a client needs; ``folder`` holds everything it writes.

    ``gateway`` and ``workers`` are its processes, for tests that stop or kill one. `start_worker`
    and `start_gateway` add one; extra settings are environment variables.
    """

    url: str
    token: str
    folder: Path
    environment: dict[str, str]
    gateway: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def client_environment(self) -> dict[str, str]:
        """The variables by which a client in a process of its own finds it."""
        return {"READIE_URL": self.url, "READIE_AUTH_TOKEN": self.token}

    def start_gateway(self, **settings: str) -> subprocess.Popen[bytes]:
        """Start it and wait until it answers."""
        self.gateway = self._start("readie_gateway", "gateway.log", settings)
        self.until("the gateway answers", lambda: self.get("/healthz") is not None)
        return self.gateway

    def start_worker(self, **settings: str) -> subprocess.Popen[bytes]:
        """Start one and wait until the gateway lists it. Those that were killed may still be listed."""
        worker = self._start("readie_worker", f"worker-{len(self.workers)}.log", settings)
        self.workers.append(worker)
        self.until(
            "the worker is listed",
            lambda: any(record["pid"] == worker.pid for record in self.worker_records()),
        )
        return worker

    def worker_records(self) -> list[dict[str, Any]]:
        answer = self.get("/v1/workers")
        return [] if answer is None else list(answer["workers"])

    def holds(self, generation: Path) -> bool:
        """Whether a worker can restore, and the gateway prices, every checkpoint of the folder."""
        manifest = json.loads((generation / "manifest.json").read_bytes())
        wanted = {checkpoint["id"] for checkpoint in manifest["checkpoints"]}
        answer = self.get("/v1/generations") or {"generations": []}
        return any(
            held["priced"] and wanted <= set(held["checkpoints"]) for held in answer["generations"]
        )

    def get(self, path: str) -> Any:
        """The JSON (or text) at a path; None while nothing answers there or it answers an error."""
        request = urllib.request.Request(
            self.url + path, headers={"Authorization": f"Bearer {self.token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=CALL_DEADLINE_S) as answer:
                body = answer.read().decode()
        except (OSError, HTTPException):  # an answer may also end in the middle
            return None
        return json.loads(body) if body.startswith(("{", "[")) else body

    def invoke(self, **body: Any) -> Any:
        """The answer to one call, as JSON."""
        request = urllib.request.Request(
            f"{self.url}/v1/invoke",
            data=json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.token}",
                "Content-Type": "application/json",
                "Accept": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=CALL_DEADLINE_S) as answer:
            return json.load(answer)

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until ``holds()``; a process that ends meanwhile, or the deadline, is a failure."""
        deadline = time.monotonic() + START_DEADLINE_S
        while not holds():
            ended = [process.args for process in self._processes() if process.poll() is not None]
            assert not ended, f"before {what}, {ended} ended:\n{self.logs()}"
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.logs()}"
            time.sleep(POLL_S)

    def logs(self) -> str:
        return "\n".join(
            f"--- {file.name}\n{file.read_text(errors='replace')}"
            for file in sorted(self.folder.glob("*.log"))
        )

    def stop(self) -> None:
        """Workers first, as `readie up` does: they settle their calls, then the gateway ends.

        Raises `TimeoutExpired` of one that had to be killed, when all have ended.
        """
        late: list[subprocess.TimeoutExpired] = []
        for process in self._processes():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=STOP_DEADLINE_S)
            except subprocess.TimeoutExpired as error:
                process.kill()
                process.wait()
                late.append(error)
        if late:
            raise late[0]

    def _processes(self) -> list[subprocess.Popen[bytes]]:
        return [*self.workers, *filter(None, [self.gateway])]

    def _start(self, module: str, log: str, settings: dict[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("ab") as output:
            return subprocess.Popen(
                tied(sys.executable, "-m", module),
                env={**self.environment, **settings},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )


@contextmanager
def running_stack(
    redis_url: str,
    folder: Path,
    *,
    generations: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Stack]:
    """A gateway and one fork worker that end with the block.

    ``settings`` are environment variables for both, on top of what they need.

    ``generations`` is the folder of one generation, held when the block begins.
    """
    token = secrets.token_urlsafe(16)
    (folder / "token").write_text(token + "\n")
    (folder / "seal-key").write_text(secrets.token_hex(32))
    (folder / "seal-key").chmod(0o600)
    port = free_port()
    environment = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
        "READIE_REDIS_URL": redis_url,
        "READIE_PORT": str(port),
        "READIE_TOKEN_FILE": str(folder / "token"),
        "READIE_SEAL_KEY_FILE": str(folder / "seal-key"),
        "READIE_DATA_DIR": str(folder),
        "READIE_BLOB_URL": (folder / "objects").as_uri(),
        "READIE_RUNTIME": "fork",
        "READIE_SLOTS": "2",
        **({"READIE_GENERATIONS_DIR": str(generations)} if generations else {}),
        **(settings or {}),
    }
    stack = Stack(f"http://127.0.0.1:{port}", token, folder, environment)
    try:
        stack.start_gateway()
        stack.start_worker()
        if generations:
            stack.until("the generation is held", lambda: stack.holds(generations))
        yield stack
    finally:
        stack.stop()
