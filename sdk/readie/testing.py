"""Readie without a service, for the tests of code that uses it.

`local_client` runs each call in a fresh process on this machine, with the program that runs calls
in a sandbox: arguments, results and exceptions are pickled for real, the function imports for real,
and what it prints arrives as it would. Calls of a session share a process. There is no gateway, no queue
and no checkpoint, and a session that is not used does not end::

    with readie.testing.local_client():
        assert double(21) == 42
"""

import json
import queue
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from readie._client import Client, using
from readie._errors import LogLine
from readie._exchange import Head, Request, Silent
from readie._executor_process import ExecutorProcess
from readie._steps import Run, Steps
from readie_wire.envelope import CallHeader
from readie_wire.framing import Decoder, FrameType, Message, encode_message
from readie_wire.http import IDEMPOTENCY_KEY, MEDIA_FRAMES, MEDIA_JSON, MEDIA_PROBLEM, PREFER
from readie_wire.keys import new_call_id, new_session_id
from readie_wire.outcome import Encoding, ErrorInfo, ErrorKind, Outcome, Receipt, StartKind

__all__ = ["local_client"]

DEFAULT_TIMEOUT_S = 3_600.0
DEFAULT_QUEUE_TIMEOUT_S = 30.0
RESULT_LIMIT_BYTES = 1 << 30


@contextmanager
def local_client(*, show_logs: bool = True) -> Iterator[Client]:
    """A client that runs calls in child processes; inside the block every function uses it."""
    with Client(transport=_ChildProcesses(), show_logs=show_logs) as client, using(client):
        yield client


class _ChildProcesses:
    """Answers as a service does, for the routes that the SDK uses."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._by_key: dict[str, str] = {}
        self._sessions: dict[str, _Session] = {}

    def exchange(self, request: Request) -> Steps["_Answer"]:
        path, _, query = request.target.removeprefix("/v1").partition("?")
        if path == "/invoke":
            call = self._accept(request)
            if isinstance(call, _Answer):
                return call
            if "respond-async" in request.headers.get(PREFER, ""):
                return _answer_json(202, {"call_id": call.id, "state": "queued"})
            return (yield from _wait(call, 0, request.patience))
        if path.startswith("/sessions"):
            return self._exchange_about_session(request, path.removeprefix("/sessions").strip("/"))
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
        for session in self._sessions.values():
            session.end("the client was closed")
        for call in self._calls.values():
            call.stop(ErrorKind.CANCELLED, "the client was closed")
            call.ended.wait()
        for session in self._sessions.values():
            session.join()

    def _accept(self, request: Request) -> "_Call | _Answer":
        key = request.headers[IDEMPOTENCY_KEY]
        if key in self._by_key:
            return self._calls[self._by_key[key]]
        (message,) = Decoder().feed(b"".join(request.body))
        call = _Call(CallHeader.from_json(message.header), message.body)
        if (session_id := call.session) is None:
            threading.Thread(target=_run_alone, args=(call,), name=call.id, daemon=True).start()
        else:
            session = self._sessions.get(session_id)
            if session is None:
                return _refusal(404, "not_found", f"there is no session {session_id}")
            if not session.add(call):
                detail = f"session {session_id} has ended: {session.reason}"
                return _refusal(410, "session_expired", detail)
        self._calls[call.id] = call
        self._by_key[key] = call.id
        return call

    def _exchange_about_session(self, request: Request, session_id: str) -> "_Answer":
        if request.method == "POST":
            session = _Session(new_session_id())
            self._sessions[session.id] = session
            return _answer_json(201, {"session_id": session.id})
        found = self._sessions.get(session_id)
        if found is None:
            return _refusal(404, "not_found", f"there is no session {session_id}")
        if request.method == "DELETE":
            found.end("it was ended by its caller")
        return _answer_json(200, {"session_id": found.id, "state": found.state})


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


def _wait(call: "_Call", after: int, patience: float) -> Steps[_Answer]:
    if not (yield Run(lambda: call.ended.wait(patience))):
        raise Silent(f"{call.id} is still running")
    return _Answer(Head(200, {"content-type": MEDIA_FRAMES}), call.frames(after))


class _Call:
    """One call and what its process has said. ``ended`` is set when the outcome is known."""

    def __init__(self, header: CallHeader, payload: bytes) -> None:
        self.id = new_call_id()
        self.ended = threading.Event()
        self.fatal = False  # its process did not survive it
        self._header = header
        self._payload = payload
        self._output: list[tuple[str, bytes]] = []
        self._stopped: ErrorInfo | None = None
        self._outcome: Outcome | None = None
        self._body = b""
        self._process: ExecutorProcess | None = None
        self._made = time.monotonic()
        self._lock = threading.Lock()

    @property
    def session(self) -> str | None:
        return self._header.options.get("session")

    @property
    def _with_session(self) -> str:
        return "; its session has ended with it" if self.session else ""

    @property
    def queue_timeout(self) -> float:
        return float(self._header.options.get("queue_timeout", DEFAULT_QUEUE_TIMEOUT_S))

    @property
    def state(self) -> str:
        if self._outcome is None:
            return "running" if self._process is not None else "queued"
        return "succeeded" if self._outcome.ok else "failed"

    def stop(self, kind: ErrorKind, message: str, *, only_waiting: bool = False) -> None:
        """End it: at once where it has no process yet, else by ending that."""
        with self._lock:
            if self._outcome is not None or self._stopped is not None:
                return
            if self._process is None:
                self._stopped = ErrorInfo(kind, kind, message)
                self._end(Outcome(False, self._receipt({}), self._stopped))
            elif not only_waiting:
                self._stopped = ErrorInfo(kind, kind, message + self._with_session)
                self._process.kill()

    def run_in(self, process: ExecutorProcess) -> bool:
        """Run it; ``False``: it was stopped before. Nobody else uses the process meanwhile."""
        with self._lock:
            if self._outcome is not None:
                return False
            self._process = process
        timeout = float(self._header.options.get("timeout", DEFAULT_TIMEOUT_S))
        alarm = threading.Timer(
            timeout, self.stop, (ErrorKind.TIMEOUT, f"the call ran longer than {timeout:g} s")
        )
        alarm.daemon = True
        alarm.start()
        kind = StartKind.SESSION if process.served else StartKind.COLD
        answer = process.call(self._call_header(timeout), self._payload, self._collect)
        alarm.cancel()
        with self._lock:
            self.fatal = answer is None or self._stopped is not None
        status = process.close() if self.fatal or self.session is None else 0
        with self._lock:
            self._end(self._ended_with(answer, status, kind))
        return True

    def frames(self, after: int) -> bytes:
        """All that happened after an event, and the end; only once that is there."""
        assert self._outcome is not None  # noqa: S101 - `ended` is set behind it
        kind = FrameType.RESULT if self._outcome.ok else FrameType.ERROR
        ending = {"call_id": self.id, "outcome": self._outcome.to_json()}
        frames = list(encode_message(FrameType.ACCEPTED, {"call_id": self.id}))
        for line in _lines(self._output):
            if line.seq > after:
                log = {"stream": line.stream, "text": line.text, "seq": line.seq}
                frames += encode_message(FrameType.LOG, log)
        return b"".join([*frames, *encode_message(kind, ending, self._body)])

    def _call_header(self, timeout: float) -> dict[str, Any]:
        return self._header.to_json() | {
            "call_id": self.id,
            "environment": self._header.options.get("env", {}),
            "secrets": self._header.options.get("secrets", {}),
            "result_limit": RESULT_LIMIT_BYTES,
            "result_encoding": "pickle",
            "timeout": timeout,
            "session": self.session is not None,
        }

    def _collect(self, stream: str, data: bytes) -> None:
        self._output.append((stream, data))

    def _end(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self.ended.set()

    def _receipt(self, header: Mapping[str, Any], kind: StartKind | None = None) -> Receipt:
        return Receipt(
            self.id,
            kind,
            runtime="testing",
            import_ms=float(header.get("import_ms", 0)),
            run_ms=float(header.get("run_ms", 0)),
            total_ms=(time.monotonic() - self._made) * 1e3,
            attempt=1,
        )

    def _ended_with(self, answer: Message | None, status: int, kind: StartKind) -> Outcome:
        header = answer.header if answer is not None else {}
        receipt = self._receipt(header, kind)
        if self._stopped is not None:
            return Outcome(False, receipt, self._stopped)
        if answer is None:
            return Outcome(False, receipt, _death(status, self._with_session))
        self._body = answer.body
        encoding = Encoding(header.get("encoding", "none"))
        if answer.type is FrameType.RESULT:
            return Outcome(True, receipt, None, encoding, len(answer.body))
        error = ErrorInfo.from_json(header["error"])
        return Outcome(False, receipt, error, encoding, len(answer.body))


def _run_alone(call: _Call) -> None:
    process = ExecutorProcess()
    if not call.run_in(process):
        process.kill()
        process.close()


class _Session:
    """Calls that share a process, one after another, in the order in which they were accepted."""

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.reason = ""  # why it has ended
        # Calls with their alarms for the end of their patience; None behind the last one.
        self._line: queue.SimpleQueue[tuple[_Call, threading.Timer] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._current: _Call | None = None
        self._thread = threading.Thread(target=self._serve, name=session_id, daemon=True)
        self._thread.start()

    @property
    def state(self) -> str:
        return "ended" if self.reason else "open"

    def add(self, call: _Call) -> bool:
        """Put it at the end of the line; ``False``: the session is over."""
        busy = "earlier calls of the session took longer than the call's queue_timeout"
        alarm = threading.Timer(
            call.queue_timeout,
            call.stop,
            (ErrorKind.SESSION_BUSY, f"{busy}; it did not run"),
            {"only_waiting": True},
        )
        alarm.daemon = True
        with self._lock:
            if self.reason:
                return False
            alarm.start()
            self._line.put((call, alarm))
        return True

    def end(self, reason: str) -> None:
        """Calls that wait fail, one that runs is cancelled. The first reason stays."""
        with self._lock:
            if self.reason:
                return
            self.reason = reason
            self._line.put(None)
            current = self._current
        if current is not None:
            current.stop(ErrorKind.CANCELLED, f"the call was cancelled: {reason}")

    def join(self) -> None:
        self._thread.join()

    def _serve(self) -> None:
        process: ExecutorProcess | None = None
        while (item := self._line.get()) is not None:
            call, alarm = item
            alarm.cancel()
            with self._lock:
                self._current = None if self.reason else call
            if self._current is None:
                message = f"the session ended before the call's turn came: {self.reason}"
                call.stop(ErrorKind.SESSION_ENDED, message)
                continue
            process = process or ExecutorProcess()
            call.run_in(process)
            with self._lock:
                self._current = None
            if call.fatal:
                process = None
                self.end(f"its sandbox did not survive {call.id}")
        if process is not None:
            process.kill()
            process.close()


def _lines(output: list[tuple[str, bytes]]) -> list[LogLine]:
    """The output in lines, each at the place of its last piece."""
    found: list[LogLine] = []
    begun = {"stdout": b"", "stderr": b""}
    for stream, data in [*output, ("stdout", b""), ("stderr", b"")]:
        *whole, begun[stream] = (begun[stream] + data).split(b"\n")
        texts = [line + b"\n" for line in whole]
        if not data and begun[stream]:  # the end: what has no newline is a line as well
            texts.append(begun[stream])
        for text in texts:
            found.append(LogLine(stream, text.decode("utf-8", "backslashreplace"), len(found) + 2))
    return found


def _death(status: int, ending: str) -> ErrorInfo:
    if status < 0:
        name = signal.Signals(-status).name
        return ErrorInfo(
            ErrorKind.SANDBOX_DIED,
            name,
            f"the process was ended by {name}{ending}",
            details={"signal": name},
        )
    return ErrorInfo(
        ErrorKind.SANDBOX_DIED,
        "exit",
        f"the process ended with exit code {status}{ending}",
        details={"exit_code": status},
    )
