"""What users of such systems complained about, tried for real: values, exceptions, prints, deaths."""

import asyncio
import io
import math
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest

import readie
from readie import remote
from support.scripts import Script

pytestmark = pytest.mark.usefixtures("client")

Runs = Callable[[str], Script]


class TwoArguments(Exception):  # noqa: N818 - named as users name theirs
    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class KeywordOnly(Exception):  # noqa: N818 - named as users name theirs
    def __init__(self, message: str, *, request: int) -> None:
        super().__init__(message)
        self.request = request


def printed(error: BaseException) -> str:
    file = io.StringIO()
    traceback.print_exception(error, file=file)
    return file.getvalue()


def failure(function: Callable[..., Any], *args: Any) -> BaseException:
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_a_value_comes_back_with_a_receipt() -> None:
    assert remote(lambda x: {"twice": x * 2})(21) == {"twice": 42}
    receipt = readie.last_receipt()
    assert receipt is not None
    assert receipt.runtime == "fork"
    assert receipt.start_kind == "cold"
    assert receipt.attempt == 1
    assert receipt.worker_id
    assert receipt.total_ms >= receipt.run_ms


@pytest.mark.parametrize(
    "error",
    [TwoArguments("boom", 7), KeywordOnly("boom", request=1)],
    ids=["two arguments", "keyword only"],
)
def test_an_exception_that_cannot_be_rebuilt_is_described_and_hides_nothing(
    error: Exception,
) -> None:
    kind, parameters = type(error), vars(error)

    @remote
    def fail() -> None:
        raise kind("boom", **parameters)

    raised = failure(fail)
    assert isinstance(raised, readie.RemoteExecutionError)
    assert raised.remote_type.endswith(kind.__name__)
    assert raised.message == "boom"
    assert "in fail" in raised.traceback
    assert remote(lambda: 1)() == 1, "the worker is as well as before"


def test_an_exception_class_that_exists_only_there_is_described() -> None:
    @remote
    def fail() -> None:
        from pathlib import Path

        Path("only_there.py").write_text("class Strange(Exception): pass\n")
        import only_there  # type: ignore[import-not-found]

        raise only_there.Strange("no route")

    raised = failure(fail)
    assert isinstance(raised, readie.RemoteExecutionError)
    assert raised.remote_type == "only_there.Strange"
    assert raised.message == "no route"
    text = printed(raised)
    assert "in fail" in text
    assert "test_calls.py" in text
    assert "No module named 'only_there'" in text


def test_exceptions_come_through_with_causes_notes_and_members() -> None:
    @remote
    def chained() -> None:
        try:
            _ = 1 / 0
        except ZeroDivisionError as error:
            raise KeyError("x") from error

    @remote
    def in_context() -> None:
        try:
            _ = 1 / 0
        except ZeroDivisionError:
            raise KeyError("x")  # noqa: B904 - this is what is tested

    @remote
    def group() -> None:
        error = ValueError("a")
        error.add_note("look here")
        raise ExceptionGroup("both", [error, TypeError("b")])

    for function in (chained, in_context):
        raised = failure(function)
        assert type(raised) is KeyError
        assert isinstance(raised.__cause__, readie.RemoteExecutionError)
        remote_text = raised.__cause__.traceback
        assert remote_text.index("ZeroDivisionError") < remote_text.index("KeyError: 'x'")
    raised = failure(group)
    assert isinstance(raised, ExceptionGroup)
    assert [type(member) for member in raised.exceptions] == [ValueError, TypeError]
    assert "look here" in printed(raised)


def test_a_module_that_is_missing_there_is_a_plain_import_error_with_a_hint() -> None:
    @remote
    def missing() -> None:
        import not_installed_anywhere  # type: ignore[import-not-found]  # noqa: F401

    raised = failure(missing)
    assert type(raised) is ModuleNotFoundError
    assert "not-installed-anywhere" in printed(raised)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: (letter for letter in "ab"), "generator"),
        (lambda: threading.Lock(), "lock"),
        (lambda: {"deep": [sys._getframe()]}, "frame"),
    ],
)
def test_a_result_that_cannot_travel_is_named(make: Callable[[], Any], name: str) -> None:
    @remote
    def give() -> Any:
        print("before the end")
        return make()

    raised = failure(give)
    assert isinstance(raised, readie.ResultNotSerializableError)
    assert name in str(raised)
    assert "".join(line.text for line in raised.logs) == "before the end\n"


def test_async_functions_run_to_completion() -> None:
    @remote
    async def wait(x: int) -> int:
        await asyncio.sleep(0)
        return x

    async def many() -> list[Any]:
        return list(await asyncio.gather(*(wait.aio(x) for x in range(5))))

    assert wait(7) == 7
    assert asyncio.run(many()) == list(range(5))


def test_a_function_that_prints_ten_megabytes_returns() -> None:
    @remote(stream_logs=False)
    def talk() -> int:
        print("x" * 10_000_000)
        return 1

    call = talk.spawn()
    assert call.get(100) == 1
    assert sum(len(line.text) for line in call.logs) < 3_000_000


def test_output_past_sys_stdout_arrives_in_order_and_live() -> None:
    @remote
    def talk() -> None:
        import os
        import subprocess
        import sys

        os.write(1, b"fd\n")
        subprocess.run(["echo", "child"], check=True)
        print("py")
        print("err", file=sys.stderr)

    shown = io.StringIO()
    with redirect_stderr(shown):
        talk()
    lines = shown.getvalue().splitlines()
    assert [line for line in lines if line != "err"] == ["fd", "child", "py"]
    assert "err" in lines


def test_prints_arrive_while_the_function_runs(tmp_path: Path) -> None:
    @remote(timeout=60)
    def talk(heard: Path) -> str:
        import time

        print("now")
        while not heard.exists():  # what comes only with the result never comes
            time.sleep(0.01)
        return "heard"

    class Watch(io.StringIO):
        def write(self, text: str) -> int:
            (tmp_path / "heard").touch()
            return len(text)

    with redirect_stderr(Watch()):
        assert talk(tmp_path / "heard") == "heard"


def test_text_that_is_no_text_is_escaped() -> None:
    @remote
    def talk() -> None:
        import os

        print("žluť 💩 \udc80 \x00")
        os.write(1, "é".encode()[:1])
        os.write(1, "é".encode()[1:] + b"\n")
        raise ValueError("né \udcff")

    shown = io.StringIO()
    with redirect_stderr(shown):
        raised = failure(talk)
    assert "žluť 💩 \\udc80 \x00" in shown.getvalue()
    assert "é\n" in shown.getvalue()
    assert isinstance(raised, ValueError)


@pytest.mark.parametrize(("given", "code"), [(0, 0), (3, 3), (None, 0), ("message", 1)])
def test_sys_exit_is_told_as_what_it_is(given: object, code: int) -> None:
    @remote
    def leave() -> None:
        import sys

        sys.exit(given)  # type: ignore[arg-type]

    raised = failure(leave)
    assert isinstance(raised, readie.RemoteExitError)
    assert raised.code == code
    assert f"called sys.exit({'' if given is None else given})" in str(raised)
    assert raised.receipt is not None
    assert raised.receipt.attempt == 1


def test_a_remote_keyboard_interrupt_is_no_interrupt_here() -> None:
    @remote
    def interrupt() -> None:
        raise KeyboardInterrupt("mine")

    raised = failure(interrupt)
    assert isinstance(raised, readie.RemoteExecutionError)
    assert "KeyboardInterrupt" in raised.remote_type


def test_a_process_that_dies_is_told_by_its_exit_and_its_last_words() -> None:
    @remote
    def leave() -> None:
        import os

        print("last words")
        os._exit(9)

    @remote
    def crash() -> None:
        import ctypes

        ctypes.string_at(0)

    raised = failure(leave)
    assert isinstance(raised, readie.SandboxDiedError)
    assert raised.exit_code == 9
    assert "last words" in str(raised)
    assert "".join(line.text for line in raised.logs) == "last words\n"
    assert raised.receipt is not None
    assert raised.receipt.attempt == 1
    raised = failure(crash)
    assert isinstance(raised, readie.SandboxDiedError)
    assert raised.signal == "SIGSEGV"


def test_a_timeout_cannot_be_swallowed_by_the_function() -> None:
    @remote(timeout=1)
    def stubborn() -> None:
        import time

        while True:
            try:
                time.sleep(60)
            except Exception:
                continue

    assert isinstance(failure(stubborn), readie.RemoteTimeoutError)


def test_reading_from_the_terminal_ends_at_once() -> None:
    @remote
    def ask() -> str:
        return input("name? ")

    @remote
    def stop() -> int:
        breakpoint()  # noqa: T100
        return 1

    assert type(failure(ask)) is EOFError
    assert stop() == 1


def test_nothing_of_a_call_is_left_for_the_next_one() -> None:
    @remote
    def leave() -> None:
        import os

        os.environ["LEFT_BEHIND"] = "s"
        os.chdir("/tmp")

    @remote
    def look() -> tuple[str | None, str]:
        import os

        return os.environ.get("LEFT_BEHIND"), os.getcwd()  # noqa: PTH109

    leave()
    left, folder = look()
    assert left is None
    assert folder != "/tmp"


def test_a_local_module_travels_with_the_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mylib.py").write_text(
        "import dataclasses\n@dataclasses.dataclass\nclass Row: x: int\ndef g(): return Row(1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import mylib  # type: ignore[import-not-found]

    assert remote(lambda: mylib.g())() == mylib.Row(1)


def test_a_call_of_another_python_is_refused_before_it_is_queued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("readie._client.python_minor", lambda: "3.9")
    raised = failure(remote(lambda: 1))
    assert isinstance(raised, readie.IncompatiblePythonError)
    assert "3.9" in str(raised)
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in str(raised)


def test_a_result_that_is_no_longer_kept_is_told_apart_from_an_unknown_call(
    client: readie.Client,
) -> None:
    call = remote(lambda: 1).bind(result_ttl=1).spawn()
    deadline = time.monotonic() + 100
    raised: BaseException | None = None
    while raised is None and time.monotonic() < deadline:
        time.sleep(0.5)
        try:
            client.call(call.id).get(5)
        except readie.StillRunningError:
            continue
        except readie.ReadieError as error:
            raised = error
    assert isinstance(raised, readie.ResultExpiredError)
    unknown = failure(client.call("call-" + "0" * 32).get, 5)
    assert isinstance(unknown, readie.InvalidRequestError | readie.ResultExpiredError)


def test_a_spawned_call_can_be_cancelled_and_found_by_its_id(client: readie.Client) -> None:
    @remote
    def endless() -> None:
        import time

        while True:
            time.sleep(1)

    call = endless.spawn()
    with pytest.raises(readie.StillRunningError):
        call.get(0.2)
    client.call(call.id).cancel()
    assert isinstance(failure(call.get, 60), readie.ExecutionCancelledError)


def test_an_option_that_the_service_refuses_is_named() -> None:
    raised = failure(remote(lambda: 1).bind(memory="lots"))
    assert isinstance(raised, readie.InvalidRequestError)
    assert "memory" in raised.field


def test_an_unknown_checkpoint_is_refused() -> None:
    raised = failure(remote(lambda: 1).bind(checkpoint_id="checkpoint_99"))
    assert isinstance(raised, readie.InvalidRequestError)
    assert "checkpoint_99" in str(raised)


def test_a_wrong_token_is_refused(client: readie.Client) -> None:
    with readie.Client(client.url, "wrong") as stranger:
        raised = failure(remote(lambda: 1).bind(client=stranger))
    assert isinstance(raised, readie.PermissionDeniedError)
    assert "READIE_AUTH_TOKEN" in str(raised)


def test_arguments_and_results_of_some_megabytes_travel() -> None:
    data = bytes(range(256)) * 20_000
    assert remote(lambda given: given[::-1])(data) == data[::-1]


def test_classes_of_a_script_stay_the_scripts_own(script: Runs) -> None:
    done = script("""
        import dataclasses, enum
        from dataclasses import dataclass
        from pydantic import BaseModel
        from readie import remote

        @dataclass
        class P: x: int

        @dataclass(slots=True, kw_only=True)
        class Q: x: int

        class M(BaseModel): name: str = ""

        class Wrong(Exception): pass

        @remote
        def f(p): return dataclasses.asdict(p), dataclasses.replace(p, x=2)

        @remote
        def g(m): return m.name, M(name="y")

        @remote
        def fail(): raise Wrong("mine")

        for value in (P(1), Q(x=1)):
            as_dict, replaced = f(value)
            assert as_dict == {"x": 1}, as_dict
            assert isinstance(replaced, type(value)) and replaced == type(value)(x=2)
            assert dataclasses.fields(value)
        name, model = g(M(name="x"))
        assert (name, model) == ("x", M(name="y")) and isinstance(model, M)
        try:
            fail()
        except Wrong as error:
            print("caught", error)
        """)
    assert done.status == 0, done.err
    assert done.out == "caught mine\n"
    assert done.err == ""


def test_a_program_that_is_interrupted_cancels_its_call(
    script: Runs, client: readie.Client
) -> None:
    done = script("""
        import os, signal, threading, time
        from readie import remote

        @remote
        def endless():
            print("started")
            import time
            while True: time.sleep(1)

        class Watch:
            def write(self, text):
                if "started" in text:
                    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            def flush(self): pass

        import sys
        sys.stderr, stderr = Watch(), sys.stderr
        try:
            endless()
        except KeyboardInterrupt:
            sys.stderr = stderr
            print("interrupted")
        """)
    assert done.out == "interrupted\n", done.err

    from readie._steps import drive

    deadline = time.monotonic() + 100
    while True:
        calls = drive(client._service().get("/calls"))["calls"]
        states = [call["state"] for call in calls if "endless" in call["function"]]
        if "running" not in states:
            break
        assert time.monotonic() < deadline, states
        time.sleep(0.2)


def test_constants_of_the_call_are_what_they_are_here() -> None:
    assert math.isnan(remote(lambda: float("nan"))())
    assert remote(lambda *args, **kwargs: (args, kwargs))(1, a=2) == ((1,), {"a": 2})
