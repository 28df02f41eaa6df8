"""How a call ended becomes a value or an exception."""

import io
import json
import pickle
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import readie
from readie._errors import ReadieError
from readie._results import value_of
from readie._service import Ended
from readie_wire.outcome import Encoding, ErrorInfo, ErrorKind, Outcome, Receipt

RECEIPT = Receipt("call-1")
LOGS = [readie.LogLine("stdout", "hello\n", 2)]
REMOTE = 'Traceback (most recent call last):\n  File "far.py", line 7, in f\nValueError: boom\n'


def failed(
    kind: ErrorKind,
    body: bytes = b"",
    *,
    kind_name: str = "ValueError",
    message: str = "boom",
    **more: Any,
) -> Ended:
    error = ErrorInfo(kind, kind_name, message, **more)
    encoding = Encoding.PICKLE if body else Encoding.NONE
    return Ended(Outcome(False, RECEIPT, error, encoding, len(body)), body)


def succeeded(body: bytes, encoding: Encoding) -> Ended:
    return Ended(Outcome(True, RECEIPT, None, encoding, len(body)), body)


def raised(ended: Ended) -> BaseException:
    try:
        value_of(ended, LOGS)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def printed(error: BaseException) -> str:
    file = io.StringIO()
    traceback.print_exception(error, file=file)
    return file.getvalue()


def test_values_are_loaded_by_their_encoding() -> None:
    assert value_of(succeeded(pickle.dumps([1, (2,)]), Encoding.PICKLE), LOGS) == [1, (2,)]
    assert value_of(succeeded(json.dumps({"a": None}).encode(), Encoding.JSON), LOGS) == {"a": None}
    assert value_of(succeeded(b"", Encoding.NONE), LOGS) is None


def test_an_exception_that_came_through_is_raised_itself_with_the_remote_one_as_its_cause() -> None:
    original = ValueError("boom")
    original.add_note("a note")
    error = raised(failed(ErrorKind.EXCEPTION, pickle.dumps(original), traceback=REMOTE))
    assert type(error) is ValueError
    assert error.__notes__ == ["a note"]
    cause = error.__cause__
    assert isinstance(cause, readie.RemoteExecutionError)
    assert cause.receipt is RECEIPT
    assert cause.logs == tuple(LOGS)
    text = printed(error)
    assert 'File "far.py", line 7, in f' in text
    assert "test_results.py" in text


def test_an_exception_group_comes_through_with_its_members() -> None:
    group = ExceptionGroup("two", [ValueError("a"), KeyError("b")])
    error = raised(failed(ErrorKind.EXCEPTION, pickle.dumps(group), kind_name="ExceptionGroup"))
    assert isinstance(error, ExceptionGroup)
    assert [str(member) for member in error.exceptions] == ["a", "'b'"]


def test_one_printed_traceback_holds_call_site_decoding_error_and_remote_traceback() -> None:
    """The class exists only where the function ran."""
    body = pickle.dumps(ValueError("x")).replace(b"builtins", b"only_the")
    error = raised(
        failed(ErrorKind.EXCEPTION, body, kind_name="only_there.Strange", traceback=REMOTE)
    )
    assert isinstance(error, readie.RemoteExecutionError)
    assert (error.remote_type, error.message, error.traceback) == (
        "only_there.Strange",
        "boom",
        REMOTE,
    )
    text = printed(error)
    assert "only_there.Strange: boom" in text
    assert 'File "far.py", line 7, in f' in text
    assert "No module named 'only_the'" in text
    assert "direct cause" in text
    assert "test_results.py" in text


class Interrupt(KeyboardInterrupt):
    pass


@pytest.mark.parametrize("foreign", [KeyboardInterrupt("mine"), SystemExit(3), GeneratorExit()])
def test_what_is_no_exception_never_passes_for_one_of_this_process(foreign: BaseException) -> None:
    error = raised(
        failed(ErrorKind.EXCEPTION, pickle.dumps(foreign), kind_name="KeyboardInterrupt")
    )
    assert type(error) is readie.RemoteExecutionError


def test_an_error_is_an_exception_even_when_the_body_is_rubbish() -> None:
    error = raised(failed(ErrorKind.EXCEPTION, b"no pickle"))
    assert type(error) is readie.RemoteExecutionError
    assert error.__cause__ is not None


CASES: list[tuple[ErrorKind, Mapping[str, Any], type[ReadieError], Mapping[str, Any]]] = [
    (ErrorKind.EXIT, {"exit_code": 3}, readie.RemoteExitError, {"code": 3}),
    (
        ErrorKind.OUT_OF_MEMORY,
        {"limit": 256, "peak": 300},
        readie.OutOfMemoryError,
        {"limit": 256, "peak": 300},
    ),
    (ErrorKind.SANDBOX_DIED, {"exit_code": 9}, readie.SandboxDiedError, {"exit_code": 9}),
    (ErrorKind.SANDBOX_DIED, {"signal": "SIGSEGV"}, readie.SandboxDiedError, {"signal": "SIGSEGV"}),
    (ErrorKind.WORKER_LOST, {}, readie.WorkerLostError, {}),
    (ErrorKind.TIMEOUT, {}, readie.RemoteTimeoutError, {}),
    (ErrorKind.CANCELLED, {}, readie.ExecutionCancelledError, {}),
    (ErrorKind.EXPIRED, {}, readie.ClusterUnavailableError, {}),
    (ErrorKind.SERIALIZATION, {}, readie.SerializationError, {}),
    (ErrorKind.RESULT_NOT_SERIALIZABLE, {}, readie.ResultNotSerializableError, {}),
    (ErrorKind.RESULT_TOO_LARGE, {"size": 2, "limit": 1}, readie.ResultTooLargeError, {"size": 2}),
    (ErrorKind.PACKAGE_INSTALL, {}, readie.PackageInstallError, {}),
    (ErrorKind.INCOMPATIBLE_PYTHON, {}, readie.IncompatiblePythonError, {}),
    (ErrorKind.INVALID_REQUEST, {"field": "f"}, readie.InvalidRequestError, {"field": "f"}),
    (ErrorKind.SESSION_BUSY, {}, readie.ResourceExhaustedError, {}),
    (ErrorKind.SESSION_ENDED, {}, readie.SessionExpiredError, {}),
]


@pytest.mark.parametrize(("kind", "details", "expected", "attributes"), CASES)
def test_each_kind_of_failure_is_one_class_with_its_numbers(
    kind: ErrorKind,
    details: Mapping[str, Any],
    expected: type[ReadieError],
    attributes: Mapping[str, Any],
) -> None:
    error = raised(failed(kind, details=details))
    assert type(error) is expected
    assert "boom" in str(error)
    assert {name: getattr(error, name) for name in attributes} == attributes
    assert isinstance(error, ReadieError)
    assert error.receipt is RECEIPT
    assert error.logs == tuple(LOGS)


def test_every_kind_of_failure_has_its_case() -> None:
    assert {case[0] for case in CASES} | {ErrorKind.EXCEPTION} == set(ErrorKind)


def test_timeouts_are_timeouts_for_python_too() -> None:
    assert isinstance(raised(failed(ErrorKind.TIMEOUT)), TimeoutError)


def test_a_missing_module_is_told_with_what_to_install() -> None:
    message = "No module named 'cv2'"
    missing = ModuleNotFoundError(message, name="cv2")
    for body in (b"", pickle.dumps(missing)):
        error = raised(
            failed(ErrorKind.EXCEPTION, body, kind_name="ModuleNotFoundError", message=message)
        )
        assert "opencv-python" in printed(error)


def test_a_missing_module_of_the_callers_own_is_told_with_how_it_travels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_plugin.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    message = "No module named 'own_plugin'"
    error = raised(failed(ErrorKind.EXCEPTION, kind_name="ModuleNotFoundError", message=message))
    assert "write `import own_plugin` in the function" in printed(error)


def test_what_only_a_remote_function_has_is_told_to_be_missing_in_a_sandbox() -> None:
    message = "'function' object has no attribute 'spawn'"
    error = raised(failed(ErrorKind.EXCEPTION, kind_name="AttributeError", message=message))
    assert "inside a sandbox a remote function is the plain function" in printed(error)
    message = "'function' object has no attribute 'other'"
    error = raised(failed(ErrorKind.EXCEPTION, kind_name="AttributeError", message=message))
    assert "Hint" not in printed(error)


def test_a_result_that_cannot_be_loaded_here_is_an_error_with_words() -> None:
    body = pickle.dumps(ValueError("x")).replace(b"builtins", b"only_the")
    error = raised(succeeded(body, Encoding.PICKLE))
    assert isinstance(error, readie.SerializationError)
    assert "only_the" in str(error)
    assert error.receipt is RECEIPT


def test_errors_can_be_pickled() -> None:
    error = raised(failed(ErrorKind.EXCEPTION, traceback=REMOTE))
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
