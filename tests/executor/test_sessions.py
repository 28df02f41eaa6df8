"""An executor that serves a session: several calls, and what of one the next one finds."""

import json
import os
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from readie_wire.framing import FrameType, Message
from readie_wire.outcome import ErrorInfo, ErrorKind
from support.executor_driver import ExecutorDriver, Reply, call_header, pickled_call

StartExecutor = Callable[[], Awaitable[ExecutorDriver]]

MODEL: Any = None
SEEN: dict[str, int] = {}


@pytest.fixture
async def session(start_executor: StartExecutor) -> ExecutorDriver:
    driver = await start_executor()
    await driver.hello()
    return driver


async def answer_to(driver: ExecutorDriver, body: bytes, kind: str, **extra: Any) -> Message:
    """One call of a session, from CALL to its end."""
    await driver.send(FrameType.CALL, call_header(kind, session=True, **extra), body)
    await driver.send(FrameType.GO)
    while (message := await driver.receive()) is not None:
        if message.type in {FrameType.RESULT, FrameType.ERROR}:
            return message
    raise AssertionError(f"the executor ended: {await driver.output()}")


async def call(
    driver: ExecutorDriver,
    function: Callable[..., Any],
    *args: Any,
    environment: Mapping[str, str] | None = None,
) -> Any:
    body = pickled_call(function, *args)
    answer = await answer_to(driver, body, "pickle", environment=dict(environment or {}))
    return Reply([answer], "", "").value


async def source(driver: ExecutorDriver, text: str, **request: Any) -> Any:
    body = json.dumps({"source": text, **request}).encode()
    return Reply([await answer_to(driver, body, "source")], "", "").value


async def failed(driver: ExecutorDriver, function: Callable[..., Any]) -> ErrorInfo:
    answer = await answer_to(driver, pickled_call(function), "pickle")
    assert answer.type is FrameType.ERROR
    return ErrorInfo.from_json(answer.header["error"])


async def test_a_global_that_one_call_sets_is_there_for_the_next(session: ExecutorDriver) -> None:
    def load() -> None:
        global MODEL
        MODEL = {"weights": 7}

    def predict(x: int) -> int:
        return int(MODEL["weights"] * x)

    await call(session, load)
    assert await call(session, predict, 3) == 21  # though the caller's MODEL is None


async def test_a_container_that_one_call_fills_stays_filled(session: ExecutorDriver) -> None:
    def note(name: str) -> int:
        SEEN[name] = SEEN.get(name, 0) + 1
        return SEEN[name]

    assert [await call(session, note, "a") for _ in range(3)] == [1, 2, 3]


async def test_functions_follow_the_caller(session: ExecutorDriver) -> None:
    def version() -> int:
        return 1

    def use() -> int:
        return version()

    assert await call(session, use) == 1

    def version() -> int:  # type: ignore[no-redef] # noqa: F811 - as a notebook cell run again
        return 2

    assert await call(session, use) == 2


async def test_source_text_goes_on_where_the_last_one_stopped(session: ExecutorDriver) -> None:
    assert await source(session, "import math\nx = 2\nresult = x") == 2
    assert await source(session, "x += 1") is None
    assert await source(session, "result = math.pow(x, 2)") == 9.0
    assert await source(session, "def f(y):\n    return x + y", entrypoint="f", args=[1]) == 4


async def test_source_text_and_pickled_functions_share_main(session: ExecutorDriver) -> None:
    def read() -> int:
        return int(sys.modules["__main__"].x)

    await source(session, "x = 5")
    assert await call(session, read) == 5


async def test_environment_directory_path_and_process_settings_persist(
    session: ExecutorDriver,
) -> None:
    def change() -> None:
        Path("inside").mkdir()
        os.chdir("inside")
        os.environ["LEFT"] = "here"
        sys.path.append("/made-up")
        os.umask(0o077)
        warnings.simplefilter("error", UserWarning)

    def look() -> tuple[Any, ...]:
        umask = os.umask(0)
        os.umask(umask)
        folder = Path.cwd().name
        return (
            folder,
            os.environ["LEFT"],
            os.environ["GIVEN"],
            "/made-up" in sys.path,
            umask,
            warnings.filters[0][0],
        )

    await call(session, change, environment={"GIVEN": "1"})
    expected = ("inside", "here", "1", True, 0o077, "error")
    assert await call(session, look) == expected


async def test_each_call_has_its_own_id_and_variables_are_added(session: ExecutorDriver) -> None:
    def variables() -> tuple[str, str]:
        return os.environ["READIE_CALL_ID"], os.environ.get("ADDED", "")

    for number in (1, 2):
        body = pickled_call(variables)
        environment = {"ADDED": str(number)}
        answer = await answer_to(
            session, body, "pickle", call_id=f"call-{number}", environment=environment
        )
        assert Reply([answer], "", "").value == (f"call-{number}", str(number))


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        (lambda: 1 / 0, ErrorKind.EXCEPTION),
        (lambda: sys.exit(3), ErrorKind.EXIT),
        (Path(os.devnull).open, ErrorKind.RESULT_NOT_SERIALIZABLE),
    ],
)
async def test_a_call_that_fails_leaves_the_session_as_it_is(
    session: ExecutorDriver, how: Callable[[], Any], kind: ErrorKind
) -> None:
    await source(session, "x = 5")
    assert (await failed(session, how)).kind is kind
    assert await source(session, "result = x") == 5


async def test_what_a_call_prints_is_out_before_its_answer(session: ExecutorDriver) -> None:
    await source(session, "print('one')")
    await session.printed(b"one\n")
    await source(session, "import os; os.system('echo two')")
    await session.printed(b"two\n")


async def test_without_a_session_the_second_call_is_not_served(session: ExecutorDriver) -> None:
    reply = await session.call(lambda: 1)
    assert reply.value == 1
    assert await session.receive() is None
