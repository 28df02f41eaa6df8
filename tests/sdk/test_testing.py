"""``readie.testing``: a client without a service that behaves as one."""

import io
import os
import time
from contextlib import redirect_stderr
from pathlib import Path

import pytest

import readie
import readie.testing
from readie import remote


def test_calls_are_shown_raised_and_ended_as_a_service_does() -> None:
    @remote
    def talk() -> int:
        print("hello")
        return 1

    @remote
    def fail() -> None:
        raise LookupError("no")

    @remote
    def leave() -> None:
        import os

        print("last words", flush=True)
        os._exit(9)

    @remote
    def crash() -> None:
        import ctypes

        ctypes.string_at(0)

    @remote(timeout=0.5)
    def endless() -> None:
        import time

        while True:
            time.sleep(1)

    with readie.testing.local_client():
        shown = io.StringIO()
        with redirect_stderr(shown):
            assert talk() == 1
        assert shown.getvalue() == "hello\n"
        with pytest.raises(LookupError, match="no"):
            fail()
        with pytest.raises(readie.SandboxDiedError) as died:
            leave.bind(stream_logs=False)()
        assert died.value.exit_code == 9
        assert [line.text for line in died.value.logs] == ["last words\n"]
        with pytest.raises(readie.SandboxDiedError) as crashed:
            crash()
        assert crashed.value.signal == "SIGSEGV"
        with pytest.raises(readie.RemoteTimeoutError):
            endless()


def test_an_unknown_call_is_refused() -> None:
    with readie.testing.local_client() as client, pytest.raises(readie.InvalidRequestError):
        client.call("call-unknown").get(1)


def test_outside_the_block_functions_have_their_own_client_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("READIE_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("READIE_URL", raising=False)
    double = remote(lambda x: x * 2)
    with readie.testing.local_client():
        assert double(1) == 2
    with pytest.raises(readie.ConfigurationError, match="readie up"):
        double(1)


KEPT = 0


@remote
def keep(value: int) -> int:
    global KEPT
    KEPT = value
    return os.getpid()


@remote
def kept() -> int:
    print("asked")
    return KEPT


@remote
def divide(by: int) -> float:
    return 1 / by


@remote
def nap(seconds: float) -> None:
    time.sleep(seconds)


def test_calls_of_a_session_share_a_process() -> None:
    shown = io.StringIO()
    with redirect_stderr(shown), readie.testing.local_client(), readie.Session() as session:
        with readie.Session() as other:
            first, second = keep.bind(session=session)(7), keep.bind(session=other)(8)
            assert first != second
        assert kept.bind(session=session)() == 7
        receipt = readie.last_receipt()
        assert receipt is not None
        assert receipt.start_kind == "session"
        with pytest.raises(ZeroDivisionError):
            divide.bind(session=session)(0)
        assert kept.bind(session=session)() == 7
        assert kept() == 0
    assert shown.getvalue() == "asked\n" * 3


@remote
def hold(note: str) -> None:
    Path(note).touch()
    time.sleep(60)


def await_file(note: Path) -> None:
    deadline = time.monotonic() + 60
    while not note.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_session_ends_as_that_of_a_service_does(tmp_path: Path) -> None:
    with readie.testing.local_client(show_logs=False):
        with readie.Session() as session:
            with pytest.raises(readie.RemoteTimeoutError, match="its session has ended with it"):
                nap.bind(session=session, timeout=0.2)(60)
            with pytest.raises(readie.SessionExpiredError, match="did not survive"):
                kept.bind(session=session)()
        with readie.Session() as session:
            running = hold.bind(session=session).spawn(str(tmp_path / "running"))
            await_file(tmp_path / "running")
            waiting = kept.bind(session=session).spawn()
            dropped = kept.bind(session=session).spawn()
            dropped.cancel()
        with pytest.raises(readie.ExecutionCancelledError):
            running.get(60)
        with pytest.raises(readie.SessionExpiredError, match="ended by its caller"):
            waiting.get(60)
        with pytest.raises(readie.ExecutionCancelledError):
            dropped.get(60)
        with pytest.raises(readie.InvalidRequestError, match="no session"):
            kept.bind(session="sess-" + "0" * 32)()


def test_a_call_waits_for_its_turn_as_long_as_it_said() -> None:
    with readie.testing.local_client(), readie.Session() as session:
        keep.bind(session=session)(7)
        running = nap.bind(session=session).spawn(60)
        with pytest.raises(readie.ResourceExhaustedError, match="did not run"):
            kept.bind(session=session, queue_timeout=0.1)()
        running.cancel()


def test_nothing_runs_on_after_the_block(tmp_path: Path) -> None:
    @remote
    def endless(note: str) -> None:
        import os
        import time
        from pathlib import Path

        Path(note).write_text(str(os.getpid()))
        while True:
            time.sleep(1)

    note = tmp_path / "pid"
    with readie.testing.local_client():
        call = endless.spawn(str(note))
        deadline = time.monotonic() + 60
        while not note.exists() or not note.read_text():
            with pytest.raises(readie.StillRunningError):
                call.get(0.05)
            assert time.monotonic() < deadline
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)
