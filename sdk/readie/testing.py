"""Readie without a service, for the tests of code that uses it.

`local_client` runs each call in a fresh process on this machine, with the program that runs calls
in a sandbox: arguments, results and exceptions are pickled for real, the function imports for real,
and what it prints arrives as it would. There is no gateway, no queue and no checkpoint::

    with readie.testing.local_client():
        assert double(21) == 42
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from readie import _settings
from readie._client import Client, using
from readie._errors import LogLine
from readie._exchange import Head, Request, Silent
from readie._steps import Run, Steps
from readie_wire.envelope import CallHeader
from readie_wire.framing import Decoder, FrameType, Message, encode_message
from readie_wire.http import IDEMPOTENCY_KEY, MEDIA_FRAMES, MEDIA_JSON, MEDIA_PROBLEM, PREFER
from readie_wire.keys import new_call_id
from readie_wire.outcome import Encoding, ErrorInfo, ErrorKind, Outcome, Receipt, StartKind

__all__ = ["local_client"]

DEFAULT_TIMEOUT_S = 3_600.0
RESULT_LIMIT_BYTES = 1 << 30
# Of our environment, what a fresh interpreter needs to come up; the function sees none of it.
_INHERITED = ("PATH", "LANG", "TMPDIR", "SYSTEMROOT", "LD_LIBRARY_PATH", "PYTHONPATH")


@contextmanager
def local_client(*, show_logs: bool = True) -> Iterator[Client]:
    """A client that runs calls in child processes; inside the block every function uses it."""
    with Client(transport=_ChildProcesses(), show_logs=show_logs) as client, using(client):
        yield client


class _ChildProcesses:
    """Answers as a service does, for the routes that the SDK uses."""

    def __init__(self) -> None:
        self._calls: dict[str, _RunningCall] = {}
        self._by_key: dict[str, str] = {}

    def exchange(self, request: Request) -> Steps["_Answer"]:
        path, _, query = request.target.removeprefix("/v1").partition("?")
        if path == "/invoke":
            call = self._accept(request)
            if "respond-async" in request.headers.get(PREFER, ""):
                return _answer_json(202, {"call_id": call.id, "state": "queued"})
            return (yield from _wait(call, 0, request.patience))
        call_id, _, what = path.removeprefix("/calls/").partition("/")
        found = self._calls.get(call_id)
        if found is None:
            return _refusal(404, "not_found", f"there is no {path} here")
        if request.method == "DELETE":
            found.stop(ErrorKind.CANCELLED, "the call was cancelled")
            return _answer_json(200, {"call_id": call_id})
        if what == "events":
            return (yield from _wait(found, int(query.partition("=")[2] or 0), request.patience))
        return _answer_json(200, {"call_id": call_id, "state": found.state})

    def close(self) -> None:
        for call in self._calls.values():
            call.stop(ErrorKind.CANCELLED, "the client was closed")
            call.ended.wait()

    def _accept(self, request: Request) -> "_RunningCall":
        key = request.headers[IDEMPOTENCY_KEY]
        if key in self._by_key:
            return self._calls[self._by_key[key]]
        (message,) = Decoder().feed(b"".join(request.body))
        call = _RunningCall(CallHeader.from_json(message.header), message.body)
        self._calls[call.id] = call
        self._by_key[key] = call.id
        return call


class _Answer:
    def __init__(self, head: Head, body: bytes) -> None:
        self.head = head
        self._body = body

    def read(self, patience: float) -> Steps[bytes]:
        yield from ()
        body, self._body = self._body, b""
        return body

    def close(self) -> None:
        self._body = b""


def _answer_json(status: int, value: Mapping[str, Any], media: str = MEDIA_JSON) -> _Answer:
    return _Answer(Head(status, {"content-type": media}), json.dumps(value).encode())


def _refusal(status: int, code: str, detail: str) -> _Answer:
    return _answer_json(status, {"code": code, "detail": detail}, MEDIA_PROBLEM)


def _wait(call: "_RunningCall", after: int, patience: float) -> Steps[_Answer]:
    if not (yield Run(lambda: call.ended.wait(patience))):
        raise Silent(f"{call.id} is still running")
    return _Answer(Head(200, {"content-type": MEDIA_FRAMES}), call.frames(after))


class _RunningCall:
    """One executor process and what it has said. ``ended`` is set when the outcome is known."""

    def __init__(self, header: CallHeader, payload: bytes) -> None:
        self.id = new_call_id()
        self.ended = threading.Event()
        self._header = header
        self._payload = payload
        self._logs: list[LogLine] = []
        self._stopped: ErrorInfo | None = None
        self._outcome: Outcome | None = None
        self._body = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._started = time.monotonic()
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name=self.id, daemon=True).start()

    @property
    def state(self) -> str:
        if self._outcome is None:
            return "running"
        return "succeeded" if self._outcome.ok else "failed"

    def stop(self, kind: ErrorKind, message: str) -> None:
        with self._lock:
            if self._outcome is None and self._stopped is None:
                self._stopped = ErrorInfo(kind, kind, message)
                if self._process is not None:
                    _kill_group(self._process.pid)

    def frames(self, after: int) -> bytes:
        """All that happened after an event, and the end; only once that is there."""
        assert self._outcome is not None  # noqa: S101 - `ended` is set behind it
        kind = FrameType.RESULT if self._outcome.ok else FrameType.ERROR
        ending = {"call_id": self.id, "outcome": self._outcome.to_json()}
        frames = list(encode_message(FrameType.ACCEPTED, {"call_id": self.id}))
        for line in self._logs:
            if line.seq > after:
                log = {"stream": line.stream, "text": line.text, "seq": line.seq}
                frames += encode_message(FrameType.LOG, log)
        return b"".join([*frames, *encode_message(kind, ending, self._body)])

    def _run(self) -> None:
        timeout = float(self._header.options.get("timeout", DEFAULT_TIMEOUT_S))
        alarm = threading.Timer(
            timeout, self.stop, (ErrorKind.TIMEOUT, f"the call ran longer than {timeout:g} s")
        )
        alarm.daemon = True
        ours, theirs = socket.socketpair()
        try:
            with ours, theirs:
                process = self._start(theirs)
                theirs.close()
                alarm.start()
                answer = self._converse(ours, process)
                self._outcome = self._ended_with(answer, process.wait())
        finally:
            alarm.cancel()
            self.ended.set()

    def _start(self, connection: socket.socket) -> subprocess.Popen[bytes]:
        ours = _settings.environment()
        environment = {name: ours[name] for name in _INHERITED if name in ours}
        environment |= {
            "EXECUTOR_MODE": "sandbox",
            "READIE_CONNECTION": f"fd:{connection.fileno()}",
        }
        with self._lock:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "readie_executor"],
                env=environment,
                pass_fds=[connection.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            if self._stopped is not None:
                _kill_group(self._process.pid)
            return self._process

    def _converse(
        self, connection: socket.socket, process: subprocess.Popen[bytes]
    ) -> Message | None:
        readers = [
            threading.Thread(target=self._collect, args=(name, pipe), daemon=True)
            for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr))
        ]
        for reader in readers:
            reader.start()
        header = self._header.to_json() | {
            "call_id": self.id,
            "environment": self._header.options.get("env", {}),
            "secrets": self._header.options.get("secrets", {}),
            "result_limit": RESULT_LIMIT_BYTES,
            "result_encoding": "pickle",
            "timeout": self._header.options.get("timeout", DEFAULT_TIMEOUT_S),
        }
        answer = _exchange_frames(connection, header, self._payload)
        for reader in readers:
            reader.join()
        return answer

    def _collect(self, name: str, pipe: IO[bytes]) -> None:
        with pipe:
            for line in pipe:
                text = line.decode("utf-8", "backslashreplace")
                with self._lock:
                    self._logs.append(LogLine(name, text, len(self._logs) + 2))

    def _ended_with(self, answer: Message | None, status: int) -> Outcome:
        header = answer.header if answer is not None else {}
        receipt = Receipt(
            self.id,
            StartKind.COLD,
            runtime="testing",
            import_ms=float(header.get("import_ms", 0)),
            run_ms=float(header.get("run_ms", 0)),
            total_ms=(time.monotonic() - self._started) * 1e3,
            attempt=1,
        )
        with self._lock:
            stopped = self._stopped
        if stopped is not None:
            return Outcome(False, receipt, stopped)
        if answer is None:
            return Outcome(False, receipt, _death(status))
        self._body = answer.body
        encoding = Encoding(header.get("encoding", "none"))
        if answer.type is FrameType.RESULT:
            return Outcome(True, receipt, None, encoding, len(answer.body))
        error = ErrorInfo.from_json(header["error"])
        return Outcome(False, receipt, error, encoding, len(answer.body))


def _exchange_frames(
    connection: socket.socket, header: Mapping[str, Any], payload: bytes
) -> Message | None:
    """The executor's answer to one call; None when its process ended without one."""
    decoder = Decoder()
    try:
        for frame in (
            *encode_message(FrameType.CALL, header, payload),
            *encode_message(FrameType.GO),
        ):
            connection.sendall(frame)
        while data := connection.recv(1 << 18):
            for message in decoder.feed(data):
                if message.type in {FrameType.RESULT, FrameType.ERROR}:
                    return message
    except OSError:
        return None
    return None


def _death(status: int) -> ErrorInfo:
    if status < 0:
        name = signal.Signals(-status).name
        return ErrorInfo(
            ErrorKind.SANDBOX_DIED,
            name,
            f"the process was ended by {name}",
            details={"signal": name},
        )
    return ErrorInfo(
        ErrorKind.SANDBOX_DIED,
        "exit",
        f"the process ended with exit code {status}",
        details={"exit_code": status},
    )


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
