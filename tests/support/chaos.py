"""A Readie whose parts are stopped and killed while calls flow, and what became of each call.

Everything that is drawn comes from one seed: what happens to which part and when, and what each call
is. How the machine schedules it does not, so a seed says what was done, not what came of it.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any

from readie_wire.keys import Keys
from support.ports import free_port
from support.processes import tied
from support.redis_servers import RedisServer

TOKEN = "chaos"  # its id
SECRET = "made-for-one-run-only"
GATEWAYS, WORKERS, CLIENTS = 2, 3, 4
ACCEPT_S = 60.0  # to find a gateway that takes a call
END_S = 90.0  # after the last disturbance: a lease, a reaper's patience and the reruns
STOP_S = 60.0
# Longer than a reaper's patience: the fleet gives a worker up that comes back.
LONG_STOP_S = 20.0
LONG_RUN_S = 40.0  # a run that has the time for one
# Each run of the function leaves a line in a file of its call's own, then takes a moment.
SOURCE = """
import os, time
line = os.open({path!r}, os.O_WRONLY | os.O_APPEND)
os.write(line, b"run\\n")
time.sleep({seconds})
result = {number}
"""
# A call of a session also counts those of it that have begun, in what the calls before it left.
TURN = """
import os, time
turn = globals().get("turn", 0) + 1
line = os.open({path!r}, os.O_WRONLY | os.O_APPEND)
os.write(line, b"run\\n")
time.sleep({seconds})
result = turn
"""
SESSION_SHARE = 0.25  # of what clients do: a session with a few calls
LONGEST_SESSION = 6  # calls
SESSION_IDLE_S = 3.0  # most are left as they are; together they would hold all memory


@dataclass
class Sent:
    """A call that was accepted, and how it ended."""

    number: int
    call_id: str
    retries: int
    session: str = ""
    state: str = ""
    kind: str = ""  # of its error
    value: Any = None


@dataclass
class Figures:
    """What a run came to."""

    disturbances: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    accepted: int = 0
    sessions: int = 0
    slowest_end_s: float = 0.0

    def __str__(self) -> str:
        done = ", ".join(
            f"{what} {count} times" for what, count in sorted(self.disturbances.items())
        )
        ends = ", ".join(f"{count} {how}" for how, count in sorted(self.ends.items()))
        return (
            f"done: {done}\ncalls: {self.accepted} accepted, some of them in {self.sessions} sessions; "
            f"{ends}; {self.runs} runs\n"
            f"the last end came {self.slowest_end_s:.1f} s after the last disturbance"
        )


class Chaos:
    """Gateways, workers and a server in ``folder``, which calls must be able to write to."""

    def __init__(self, server: RedisServer, folder: Path, seed: int) -> None:
        self.figures = Figures()
        self.sent: list[Sent] = []
        self._server = server
        self._folder = folder
        self._random = random.Random(seed)
        self._runs = folder / "runs"
        self._runs.mkdir()
        (folder / "token").write_text(f"{TOKEN}:{SECRET}\n")
        self._ports = [free_port() for _ in range(GATEWAYS)]
        self._parts: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._numbers = iter(range(1 << 30))
        self._over = threading.Event()

    def run(self, seconds: float) -> None:
        """Disturb for so long while clients send calls; then let all of them end."""
        for name in self._names():
            self._start(name)
        self._until_healthy()
        clients = [
            threading.Thread(target=self._send_calls, args=(self._random.random(),))
            for _ in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(self._random.uniform(0.2, 1.0))
            self._disturb(long=seconds >= LONG_RUN_S)
        self._over.set()
        self._until_healthy()
        calm = time.monotonic()
        for client in clients:
            client.join()
        self._await_ends(calm)
        self._end_sessions(calm)
        self._until_buried(calm)
        self.figures.accepted = len(self.sent)
        self.figures.sessions = len({sent.session for sent in self.sent if sent.session})

    def runs_of(self, sent: Sent) -> int:
        return len(self._file(sent.number).read_text().splitlines())

    def turns_by_session(self) -> dict[str, list[Sent]]:
        """The calls of each session in the order in which they were accepted."""
        found: dict[str, list[Sent]] = {}
        for sent in self.sent:
            if sent.session:
                found.setdefault(sent.session, []).append(sent)
        return found

    def stop(self) -> None:
        for process in self._parts.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._parts.values():
            try:
                process.wait(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def logs(self) -> str:
        return "\n".join(
            f"--- {file.name}\n{file.read_text(errors='replace')[-4000:]}"
            for file in sorted(self._folder.glob("*.log"))
        )

    # What is done to the parts.

    def _disturb(self, *, long: bool) -> None:
        name = self._random.choice([*self._names(), "server"])
        kind, pause = name.partition("-")[0], self._random.uniform(0.2, 3.0)
        if self._random.random() < 0.5:
            self.figures.disturbances[f"{kind} killed"] += 1
            self._kill(name)
        else:
            how = "stopped"
            if long and kind == "worker" and self._random.random() < 0.3:
                how, pause = "stopped for long", LONG_STOP_S
            self.figures.disturbances[f"{kind} {how}"] += 1
            pid = self._server.pid if name == "server" else self._parts[name].pid
            os.kill(pid, signal.SIGSTOP)
            time.sleep(pause)
            os.kill(pid, signal.SIGCONT)

    def _kill(self, name: str) -> None:
        if name == "server":
            self._server.kill()
            self._server.start()
            return
        self._parts[name].kill()
        self._parts[name].wait()
        self._start(name)

    def _names(self) -> list[str]:
        gateways = [f"gateway-{number}" for number in range(GATEWAYS)]
        return gateways + [f"worker-{number}" for number in range(WORKERS)]

    def _start(self, name: str) -> None:
        kind, _, number = name.partition("-")
        environment = {
            **{key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ},
            "READIE_REDIS_URL": self._server.url,
            "READIE_TOKEN_FILE": str(self._folder / "token"),
            "READIE_DATA_DIR": str(self._folder / name),
            "READIE_BLOB_URL": (self._folder / "objects").as_uri(),
            "READIE_RUNTIME": "fork",
            "READIE_SLOTS": "2",
            "READIE_BEAT": "0.5",
            "READIE_MEMORY_TOTAL": str(4 << 30),
            "SANDBOX_IDLE_TTL": str(SESSION_IDLE_S),
        }
        if kind == "gateway":
            environment["READIE_PORT"] = str(self._ports[int(number)])
        with (self._folder / f"{name}.log").open("ab") as log:
            self._parts[name] = subprocess.Popen(
                tied(sys.executable, "-m", f"readie_{kind}"),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _until_healthy(self) -> None:
        """Every gateway answers, and the fleet is exactly the workers that live."""
        deadline = time.monotonic() + END_S
        for place in range(GATEWAYS):
            while len((self._ask(place, "GET", "/v1/workers") or {}).get("workers", ())) != WORKERS:
                assert time.monotonic() < deadline, self.logs()
                time.sleep(0.1)

    # What the clients do.

    def _send_calls(self, seed: float) -> None:
        drawn = random.Random(seed)
        while not self._over.is_set():
            if drawn.random() < SESSION_SHARE:
                self._use_a_session(drawn)
            else:
                retries = drawn.choice((0, 0, 2))
                self._send(SOURCE, {"retries": retries, "memory": "128Mi"}, drawn)
            time.sleep(drawn.uniform(0, 0.2))

    def _use_a_session(self, drawn: random.Random) -> None:
        """Calls that follow one another without waiting; somebody may end the session meanwhile."""
        body = {"options": {"memory": "128Mi"}}
        session = str(self._until("POST", "/v1/sessions", {}, body, drawn)["session_id"])
        for _ in range(drawn.randrange(1, LONGEST_SESSION)):
            if not self._send(TURN, {"session": session}, drawn):
                return
            time.sleep(drawn.uniform(0, 0.2))
        if drawn.random() < 0.3:
            self._until("DELETE", f"/v1/sessions/{session}", {}, {}, drawn)

    def _send(self, source: str, options: dict[str, Any], drawn: random.Random) -> bool:
        """One call, accepted; or not, because its session is over."""
        with self._lock:
            number = next(self._numbers)
        self._file(number).touch()
        self._file(number).chmod(0o666)
        path, seconds = str(self._file(number)), drawn.uniform(0, 0.3)
        body = {
            "source": source.format(path=path, seconds=seconds, number=number),
            "options": {"queue_timeout": 300, "timeout": 20, **options},
        }
        headers = {"Prefer": "respond-async", "Idempotency-Key": f"chaos-{number}"}
        answer = self._until("POST", "/v1/invoke", headers, body, drawn)
        if answer.get("code") == "session_expired":
            return False
        retries, session = options.get("retries", 0), options.get("session", "")
        with self._lock:
            self.sent.append(Sent(number, str(answer["call_id"]), retries, session))
        return True

    def _until(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any],
        drawn: random.Random,
    ) -> dict[str, Any]:
        """The same request, with the same key, to any gateway, until one has an answer."""
        deadline = time.monotonic() + ACCEPT_S
        while time.monotonic() < deadline:
            place = drawn.randrange(GATEWAYS)
            answer = self._ask(place, method, path, headers, json.dumps(body).encode())
            if answer is not None:
                return answer
            time.sleep(0.1)
        raise AssertionError(f"no gateway answers {method} {path}\n{self.logs()}")

    def _end_sessions(self, calm: float) -> None:
        """Those that nobody has ended yet, also ones whose opener never heard of them."""
        deadline = calm + END_S
        while (listed := self._ask(0, "GET", "/v1/sessions")) is None or listed["sessions"]:
            assert time.monotonic() < deadline, f"{listed} are still open\n{self.logs()}"
            for session in (listed or {"sessions": []})["sessions"]:
                self._ask(0, "DELETE", f"/v1/sessions/{session['session_id']}")

    def _until_buried(self, calm: float) -> None:
        """Those that were killed while they held nothing, too: who sweeps is about to be stopped."""
        while self._server.command("SCARD", Keys().workers) != f":{WORKERS}":
            assert time.monotonic() < calm + END_S, self.logs()
            time.sleep(0.1)

    def _await_ends(self, calm: float) -> None:
        deadline = calm + END_S
        for sent in self.sent:
            while not sent.state:
                assert time.monotonic() < deadline, f"{sent} has not ended\n{self.logs()}"
                call = self._ask(0, "GET", f"/v1/calls/{sent.call_id}")
                if call and call.get("finished_ms"):
                    sent.state, sent.kind = call["state"], (call["error"] or {}).get("kind", "")
                else:
                    time.sleep(0.05)
            while sent.state == "succeeded" and sent.value is None:
                result = self._ask(0, "GET", f"/v1/calls/{sent.call_id}/result")
                sent.value = (result or {}).get("value")
                assert time.monotonic() < deadline, f"no value of {sent}\n{self.logs()}"
            self.figures.ends[f"{sent.state} {sent.kind}".strip()] += 1
            self.figures.runs += self.runs_of(sent)
        self.figures.slowest_end_s = time.monotonic() - calm

    def _ask(
        self,
        place: int,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> dict[str, Any] | None:
        """The JSON answer; None where there was none, or a refusal that another try may change.

        That a session is over is an answer.
        """
        given = {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._ports[place]}{path}",
            data=body,
            headers={**given, **(headers or {})},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except urllib.error.HTTPError as error:
            with error:
                return {"code": "session_expired"} if error.code == HTTPStatus.GONE else None
        except (OSError, ValueError, HTTPException):  # an answer may also end in the middle
            return None

    def _file(self, number: int) -> Path:
        return self._runs / str(number)
