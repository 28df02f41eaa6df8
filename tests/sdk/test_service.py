"""What the SDK says to a service, and what it makes of every way in which that can go wrong."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from readie._errors import (
    ClusterUnavailableError,
    IncompatiblePythonError,
    InvalidRequestError,
    LogLine,
    PermissionDeniedError,
    ReadieError,
    ResourceExhaustedError,
    ResultExpiredError,
    StillRunningError,
    TransportError,
)
from readie._exchange import Broken, Head, Request, Silent, Unreachable
from readie._service import BROKEN_TRIES, UNREACHABLE_TRIES, Ended, Progress, Service, Submission
from readie._steps import Operation, Sleep, Steps, drive, drive_async
from readie_wire.envelope import CallHeader, CallKind
from readie_wire.framing import FrameType, encode_message
from readie_wire.outcome import Encoding, Outcome, Receipt

T = TypeVar("T")
CALL = "call-0123"
FRAMES = {"content-type": "application/vnd.readie.frames"}


def accepted() -> bytes:
    return b"".join(encode_message(FrameType.ACCEPTED, {"call_id": CALL, "choice": {}}))


def log(seq: int) -> bytes:
    header = {"stream": "stdout", "text": f"line {seq}\n", "seq": seq}
    return b"".join(encode_message(FrameType.LOG, header))


def bye(reason: str = "window") -> bytes:
    header = {"call_id": CALL, "state": "running", "reason": reason}
    return b"".join(encode_message(FrameType.BYE, header))


def result(body: bytes = b"value") -> bytes:
    outcome = Outcome(True, Receipt(CALL), None, Encoding.PICKLE, len(body))
    header = {"call_id": CALL, "seq": 99, "outcome": outcome.to_json()}
    return b"".join(encode_message(FrameType.RESULT, header, body))


PING = b"".join(encode_message(FrameType.PING))


@dataclass
class Script:
    """A transport that answers with what it was given: a fault, or a head and pieces of a body."""

    answers: list[Exception | tuple[Head, Sequence[bytes | Exception]]]
    requests: list[Request] = field(default_factory=list)

    def exchange(self, request: Request) -> Steps["ScriptedResponse"]:
        yield from ()
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        head, pieces = answer
        return ScriptedResponse(head, iter(pieces))

    def close(self) -> None: ...


@dataclass
class ScriptedResponse:
    head: Head
    pieces: Iterator[bytes | Exception]

    def read(self, patience: float) -> Steps[bytes]:
        yield from ()
        piece = next(self.pieces, b"")
        if isinstance(piece, Exception):
            raise piece
        return piece

    def close(self) -> None: ...


def frames(*pieces: bytes | Exception) -> tuple[Head, Sequence[bytes | Exception]]:
    return Head(200, FRAMES), pieces


def problem(status: int, code: str, **more: Any) -> tuple[Head, Sequence[bytes]]:
    import json

    headers = {"content-type": "application/problem+json", **more.pop("headers", {})}
    body = {"status": status, "code": code, "detail": f"it is {code}", **more}
    return Head(status, headers), [json.dumps(body).encode()]


def without_sleep(steps: Steps[T]) -> T:
    """Carry out steps that only ever sleep, in no time."""
    try:
        operation: Operation = next(steps)
        while True:
            assert isinstance(operation, Sleep)
            operation = steps.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value


def run(script: Script, progress: Progress | None = None) -> Ended:
    header = CallHeader(CallKind.PICKLE, "f")
    submission = Submission.of(header, b"payload")
    service = Service(script, "secret", "test")
    return without_sleep(service.run(submission, progress or Progress()))


def test_a_call_is_posted_with_its_token_and_a_key_and_its_logs_are_relayed_once() -> None:
    shown: list[LogLine] = []
    progress = Progress(shown.append)
    script = Script(
        [frames(accepted() + log(2), PING, log(2) + log(3), result()[:20], result()[20:])]
    )
    ended = run(script, progress)
    assert ended.body == b"value"
    assert [line.seq for line in shown] == [2, 3]
    assert progress.call_id == CALL
    (request,) = script.requests
    assert (request.method, request.target) == ("POST", "/v1/invoke")
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["Idempotency-Key"]


def test_a_lost_answer_is_asked_for_again_with_the_same_key_and_bytes() -> None:
    script = Script([Broken("gone"), Unreachable("down"), frames(result())])
    assert run(script).body == b"value"
    keys = {request.headers["Idempotency-Key"] for request in script.requests}
    assert len(script.requests) == 3
    assert len(keys) == 1
    assert len({request.body for request in script.requests}) == 1


@pytest.mark.parametrize(
    "break_off",
    [
        bye(),
        bye("shutdown"),
        bye("store_unavailable"),
        Broken("lost"),
        Silent("nothing"),
        b"",
        b"xx",
    ],
)
def test_a_call_is_followed_over_every_way_in_which_an_answer_breaks_off(
    break_off: bytes | Exception,
) -> None:
    progress = Progress()
    script = Script(
        [
            frames(accepted(), log(2), break_off),
            frames(log(3), break_off),
            frames(log(3), log(4), result()),
        ]
    )
    assert run(script, progress).body == b"value"
    assert [line.seq for line in progress.logs] == [2, 3, 4]
    assert [request.target for request in script.requests] == [
        "/v1/invoke",
        f"/v1/calls/{CALL}/events?after=2",
        f"/v1/calls/{CALL}/events?after=3",
    ]


def test_a_service_that_restarts_in_the_middle_of_a_call_is_waited_for() -> None:
    down = [Unreachable("refused")] * (BROKEN_TRIES - 2)
    script = Script([frames(accepted(), Broken("lost")), *down, frames(result())])
    assert run(script).body == b"value"


def test_progress_starts_the_count_of_failures_anew() -> None:
    broken = [frames(log(seq), Broken("lost")) for seq in range(2, 2 + 3 * BROKEN_TRIES)]
    broken[0] = frames(accepted(), Broken("lost"))
    assert run(Script([*broken, frames(result())])).body == b"value"


@pytest.mark.parametrize(
    ("fault", "tries"),
    [(Unreachable("refused"), UNREACHABLE_TRIES), (Broken("lost"), BROKEN_TRIES)],
)
def test_a_service_that_stays_away_is_given_up_with_the_reason(
    fault: Exception, tries: int
) -> None:
    script = Script([fault] * (tries + 1))
    with pytest.raises(ClusterUnavailableError, match=str(fault)):
        run(script)
    assert len(script.requests) == tries


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (problem(401, "unauthenticated"), PermissionDeniedError),
        (problem(403, "forbidden"), PermissionDeniedError),
        (problem(404, "not_found"), InvalidRequestError),
        (problem(410, "result_expired"), ResultExpiredError),
        (problem(422, "incompatible_python"), IncompatiblePythonError),
        (problem(422, "a_code_of_the_future"), InvalidRequestError),
        (problem(429, "queue_full"), ResourceExhaustedError),
        (problem(503, "no_worker"), ClusterUnavailableError),
        ((Head(404, {"content-type": "text/html"}), [b"<html>"]), TransportError),
    ],
)
def test_a_refusal_is_one_clear_error_and_not_repeated(
    answer: tuple[Head, Sequence[bytes]], expected: type[ReadieError]
) -> None:
    script = Script([answer])
    with pytest.raises(expected) as caught:
        run(script)
    assert type(caught.value) is expected
    assert len(script.requests) == 1


def test_a_refusal_tells_the_field_and_when_to_come_back() -> None:
    with pytest.raises(InvalidRequestError) as invalid:
        run(Script([problem(422, "invalid_request", field="options.memory")]))
    assert invalid.value.field == "options.memory"
    with pytest.raises(ResourceExhaustedError) as full:
        run(Script([problem(429, "queue_full", headers={"retry-after": "7"})]))
    assert full.value.retry_after == 7


@pytest.mark.parametrize(
    "answer",
    [
        problem(503, "store_unavailable"),
        problem(500, "internal"),
        (Head(502, {"content-type": "text/html"}), [b"bad gateway"]),
    ],
)
def test_what_may_pass_is_tried_again(answer: tuple[Head, Sequence[bytes]]) -> None:
    assert run(Script([answer, frames(result())])).body == b"value"


def test_a_result_that_is_gone_is_told_at_once() -> None:
    script = Script([problem(410, "result_expired")])
    service = Service(script, "", "test")
    with pytest.raises(ResultExpiredError):
        without_sleep(service.follow(Progress(None, CALL), None))
    script = Script([frames(bye("result_expired"))])
    with pytest.raises(ResultExpiredError):
        without_sleep(Service(script, "", "test").follow(Progress(None, CALL), None))


def test_waiting_ends_at_the_deadline_and_says_that_the_call_goes_on() -> None:
    past = time.monotonic() - 1
    with pytest.raises(StillRunningError):
        without_sleep(Service(Script([]), "", "test").follow(Progress(None, CALL), past))
    service = Service(Script([Silent("nothing")] * 3), "", "test")
    with pytest.raises(StillRunningError, match=CALL):
        drive(service.follow(Progress(None, CALL), time.monotonic() + 0.02))


def test_a_body_that_is_no_frames_is_not_taken_for_a_result() -> None:
    script = Script([frames(b"\x63" + b"x" * 40)] * BROKEN_TRIES)
    with pytest.raises(ClusterUnavailableError, match="not made of frames"):
        run(script)


def test_both_drivers_carry_out_the_same_steps() -> None:
    def steps(fail: bool) -> Steps[str]:
        from readie._steps import Run

        yield Sleep(0)
        try:
            value = yield Run(_raising if fail else lambda: "ran")
        except ValueError as error:
            return f"caught {error}"
        return str(value)

    drivers: list[Callable[[Steps[str]], str]] = [drive, lambda it: asyncio.run(drive_async(it))]
    for driver in drivers:
        assert driver(steps(fail=False)) == "ran"
        assert driver(steps(fail=True)) == "caught no"


def _raising() -> None:
    raise ValueError("no")


def test_an_interrupt_closes_the_steps() -> None:
    closed = []

    def steps() -> Steps[None]:
        from readie._steps import Run

        try:
            yield Run(_interrupt)
        finally:
            closed.append(True)

    with pytest.raises(KeyboardInterrupt):
        drive(steps())
    assert closed == [True]


def _interrupt() -> None:
    raise KeyboardInterrupt
