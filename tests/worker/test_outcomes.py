import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie_wire.framing import FrameType, Message
from readie_wire.lifecycle import State
from readie_wire.outcome import Encoding, ErrorInfo, ErrorKind, Outcome, Receipt
from readie_worker import outcomes
from readie_worker.errors import Stop, StopKind
from readie_worker.sandbox.api import SandboxExit

MEMORY = 1 << 30
RECEIPT = Receipt("call-1", start_ms=2.0, attempt=1, worker_id="worker-1")


def test_a_result_keeps_its_body_and_what_the_executor_measured() -> None:
    header = {
        "encoding": "pickle",
        "import_ms": 3.5,
        "run_ms": 7,
        "imports_missed": ["numpy"],
        "peak_memory": 5_000_000,
    }
    message = Message(FrameType.RESULT, header, b"value")
    ending = outcomes.of_message(message, RECEIPT, memory=MEMORY)
    assert (ending.state, ending.body) == (State.SUCCEEDED, b"value")
    outcome = ending.outcome
    assert (outcome.ok, outcome.encoding, outcome.size) == (True, Encoding.PICKLE, 5)
    receipt = outcome.receipt
    assert (receipt.start_ms, receipt.import_ms, receipt.run_ms) == (2.0, 3.5, 7.0)
    assert (receipt.imports_missed, receipt.peak_memory_mb) == (("numpy",), 5.0)


def test_an_error_keeps_its_kind_and_its_pickled_exception() -> None:
    error = ErrorInfo(ErrorKind.EXIT, "SystemExit", "3", details={"exit_code": 3})
    header = {"error": error.to_json(), "encoding": "none"}
    ending = outcomes.of_message(Message(FrameType.ERROR, header), RECEIPT, memory=MEMORY)
    assert ending.state is State.FAILED
    assert ending.outcome.error == error


def test_a_refused_allocation_is_told_with_the_limit_of_the_call() -> None:
    seen = ErrorInfo(ErrorKind.OUT_OF_MEMORY, "MemoryError", "", "trace", details={"limit": 7})
    header = {"error": seen.to_json(), "peak_memory": 5_000_000}
    message = Message(FrameType.ERROR, header)
    error = outcomes.of_message(message, RECEIPT, memory=MEMORY).outcome.error
    assert error is not None
    assert (error.kind, error.type) == (ErrorKind.OUT_OF_MEMORY, "readie.OutOfMemoryError")
    assert error.details == {"limit": MEMORY, "peak": 5_000_000}
    assert error.traceback == "trace"


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(
    st.sampled_from([FrameType.RESULT, FrameType.ERROR]),
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ("encoding", "error", "import_ms", "run_ms", "imports_missed", "peak_memory"), JSON
        ),
    ),
)
def test_whatever_a_sandbox_claims_becomes_an_outcome_that_can_be_read_back(
    kind: FrameType, header: dict[str, Any]
) -> None:
    outcome = outcomes.of_message(Message(kind, header), RECEIPT, memory=MEMORY).outcome
    assert Outcome.from_json(outcome.to_json()).ok is (kind is FrameType.RESULT)
    assert outcome.receipt.call_id == "call-1"


@pytest.mark.parametrize(
    ("end", "kind", "said", "details"),
    [
        (SandboxExit(exit_code=9), ErrorKind.SANDBOX_DIED, "exit code 9", {"exit_code": 9}),
        (
            SandboxExit(signal=signal.SIGSEGV),
            ErrorKind.SANDBOX_DIED,
            "SIGSEGV",
            {"signal": "SIGSEGV"},
        ),
        (None, ErrorKind.SANDBOX_DIED, "stopped answering", {}),
        (
            SandboxExit(exit_code=2, crowded=True),
            ErrorKind.SANDBOX_DIED,
            "more processes than it may have",
            {"exit_code": 2},
        ),
        (
            SandboxExit(signal=signal.SIGKILL, out_of_memory=True, peak_memory=200),
            ErrorKind.OUT_OF_MEMORY,
            "more than its 64 MiB",
            {"limit": 64 << 20, "peak": 200},
        ),
    ],
)
def test_a_sandbox_that_died_is_told_with_how_and_its_last_lines(
    end: SandboxExit | None, kind: ErrorKind, said: str, details: dict[str, Any]
) -> None:
    ending = outcomes.of_death(end, RECEIPT, memory=64 << 20, last_lines=["last words"])
    error = ending.outcome.error
    assert ending.state is State.FAILED
    assert error is not None
    assert error.kind is kind
    assert said in error.message
    assert error.details == {**details, "last_lines": ["last words"]}


def test_the_first_line_about_a_death_is_a_sentence_of_its_own() -> None:
    ending = outcomes.of_death(
        SandboxExit(exit_code=9), RECEIPT, memory=MEMORY, last_lines=["last words"]
    )
    assert ending.outcome.error is not None
    assert ending.outcome.error.message.splitlines() == [
        "the sandbox ended with exit code 9 before the function returned",
        "its last lines:",
        "last words",
    ]


@pytest.mark.parametrize(
    ("stop", "state", "kind", "said"),
    [
        (Stop(StopKind.TIMEOUT), State.FAILED, ErrorKind.TIMEOUT, "timeout of 1.5 s"),
        (
            Stop(StopKind.CANCELLED, "the client left"),
            State.CANCELLED,
            ErrorKind.CANCELLED,
            "cancelled: the client left",
        ),
        (Stop(StopKind.SHUTDOWN, "it drains"), State.FAILED, ErrorKind.WORKER_LOST, "it drains"),
    ],
)
def test_timeout_cancel_and_shutdown_are_told_apart(
    stop: Stop, state: State, kind: ErrorKind, said: str
) -> None:
    ending = outcomes.of_stop(stop, RECEIPT, timeout=1.5)
    assert ending.state is state
    assert ending.outcome.error is not None
    assert ending.outcome.error.kind is kind
    assert said in ending.outcome.error.message
