"""Sessions as users have them: state that stays, one call at a time, an end that is told."""

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import readie
from readie import remote
from support.scripts import Script

pytestmark = pytest.mark.usefixtures("client")

MODEL: Any = None


@pytest.fixture
def session(client: readie.Client) -> Iterator[readie.Session]:
    with readie.Session(memory="256Mi") as opened:
        yield opened


@remote
def load(weight: int) -> None:
    global MODEL
    MODEL = {"weight": weight}


@remote
def predict(x: int) -> int:
    return int(MODEL["weight"] * x)


def test_a_call_finds_what_the_one_before_it_left(session: readie.Session) -> None:
    load.bind(session=session)(7)
    assert predict.bind(session=session)(3) == 21
    receipt = readie.last_receipt()
    assert receipt is not None
    assert receipt.start_kind == "session"


def test_another_process_joins_by_the_id(session: readie.Session) -> None:
    load.bind(session=session)(7)
    assert predict.bind(session=session.id)(2) == 14


def test_without_the_session_nothing_is_found(session: readie.Session) -> None:
    load.bind(session=session)(7)
    with pytest.raises(TypeError):
        predict(3)


def test_calls_from_several_threads_run_one_at_a_time(session: readie.Session) -> None:
    @remote
    def timed() -> tuple[float, float]:
        began = time.monotonic()
        time.sleep(0.1)
        return began, time.monotonic()

    bound = timed.bind(session=session)
    times: list[tuple[float, float]] = []
    threads = [threading.Thread(target=lambda: times.append(bound())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times.sort()
    assert all(before[1] <= after[0] for before, after in pairwise(times))


async def test_sessions_work_in_coroutines() -> None:
    async with readie.Session() as session:
        await load.bind(session=session).aio(5)
        assert await predict.bind(session=session).aio(2) == 10


def test_an_exception_is_the_functions_own_and_keeps_the_session(session: readie.Session) -> None:
    @remote
    def fail() -> None:
        raise LookupError("not there")

    load.bind(session=session)(7)
    with pytest.raises(LookupError, match="not there"):
        fail.bind(session=session)()
    assert predict.bind(session=session)(1) == 7


def test_a_sandbox_that_dies_takes_the_session_along(session: readie.Session) -> None:
    @remote
    def die() -> None:
        import os

        os._exit(3)

    with pytest.raises(readie.SandboxDiedError):
        die.bind(session=session)()
    with pytest.raises(readie.SessionExpiredError, match="did not survive"):
        predict.bind(session=session)(1)


def test_after_the_block_the_session_is_over() -> None:
    with readie.Session() as session:
        load.bind(session=session)(7)
    with pytest.raises(readie.SessionExpiredError, match="ended by its caller"):
        predict.bind(session=session)(1)


def test_a_session_must_be_open(client: readie.Client) -> None:
    with pytest.raises(readie.ConfigurationError, match="open the session"):
        predict.bind(session=readie.Session())(1)


def test_an_option_of_calls_is_none_of_a_session() -> None:
    with pytest.raises(readie.ConfigurationError, match="timeout is an option of calls"):
        readie.Session(timeout=3)  # type: ignore[call-arg]


def test_an_option_of_the_sandbox_is_refused_in_its_calls(session: readie.Session) -> None:
    with pytest.raises(readie.InvalidRequestError, match="memory is the session's to say"):
        predict.bind(session=session, memory="2Gi")(1)


def test_a_busy_session_refuses_a_call_that_would_not_wait(session: readie.Session) -> None:
    nap = remote(time.sleep).bind(session=session)
    running = nap.spawn(60)
    with pytest.raises(readie.ResourceExhaustedError):
        nap.bind(queue_timeout=0.01)(0)
    running.cancel()


def test_a_module_of_the_caller_keeps_its_state(
    script: Callable[[str], Script], tmp_path: Path
) -> None:
    (tmp_path / "counter.py").write_text(
        "seen = 0\ndef add():\n    global seen\n    seen += 1\n    return seen\n"
    )
    ran = script(
        """
        import readie, counter
        @readie.remote
        def add():
            return counter.add()
        with readie.Session() as session:
            print([add.bind(session=session)() for _ in range(3)])
        """
    )
    assert "[1, 2, 3]" in ran.out
