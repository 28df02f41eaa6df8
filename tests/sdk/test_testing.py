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
