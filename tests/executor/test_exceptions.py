"""What the caller is told when a function raises, and when the exception object itself is sent."""

import json

import pytest

from readie_executor.exceptions import MAX_TOTAL, describe
from readie_wire.framing import MAX_HEADER_BYTES, FrameType
from support.executor_driver import ExecutorDriver


async def test_an_exception_that_survives_the_trip_is_sent_itself(executor: ExecutorDriver) -> None:
    def fail() -> None:
        error = ValueError("boom", 7)
        error.add_note("a note")
        raise error

    reply = await executor.call(fail)
    assert isinstance(reply.exception, ValueError)
    assert reply.exception.args == ("boom", 7)
    assert reply.error.notes == ("a note",)
    assert "in fail" in reply.error.traceback
    assert "readie_executor" not in reply.error.traceback


async def test_an_exception_that_cannot_be_made_again_is_described(
    executor: ExecutorDriver,
) -> None:
    class TwoArgumentsError(Exception):
        def __init__(self, message: str, code: int) -> None:
            super().__init__(message)
            self.code = code

    def fail() -> None:
        raise TwoArgumentsError("boom", 7)

    reply = await executor.call(fail)
    assert reply.last.body == b""
    assert reply.error.type.endswith("TwoArgumentsError")
    assert reply.error.message == "boom"
    assert reply.error.details["attributes"] == {"code": "7"}
    assert "in fail" in reply.error.traceback


async def test_so_is_one_with_arguments_by_keyword_only(executor: ExecutorDriver) -> None:
    class KeywordOnlyError(Exception):
        def __init__(self, message: str, *, request: int) -> None:
            super().__init__(message)
            self.request = request

    def fail() -> None:
        raise KeywordOnlyError("boom", request=1)

    reply = await executor.call(fail)
    assert reply.last.body == b""
    assert reply.error.message == "boom"
    assert reply.error.details["attributes"] == {"request": "1"}


async def test_an_exception_with_its_own_constructor_is_sent_when_it_can_be_made_again(
    executor: ExecutorDriver,
) -> None:
    class FaithfulError(Exception):
        def __init__(self, message: str, code: int) -> None:
            super().__init__(message, code)
            self.code = code

    def fail() -> None:
        raise FaithfulError("boom", 7)

    reply = await executor.call(fail)
    assert isinstance(reply.exception, FaithfulError)
    assert vars(reply.exception) == {"code": 7}


async def test_causes_and_contexts_are_described_in_order_each_with_its_traceback(
    executor: ExecutorDriver,
) -> None:
    def fail() -> None:
        try:
            try:
                _ = 1 / 0
            except ZeroDivisionError:
                raise KeyError("during")  # noqa: B904 - the implicit context is the point
        except KeyError as error:
            raise ValueError("because") from error

    last = (await executor.call(fail)).error
    assert (last.type, last.message) == ("ValueError", "because")
    middle = last.cause
    assert middle is not None
    assert (middle.type, last.context) == ("KeyError", False)
    first = middle.cause
    assert first is not None
    assert (first.type, middle.context) == ("ZeroDivisionError", True)
    for error in (last, middle, first):
        assert "in fail" in error.traceback
    assert "ZeroDivisionError" not in last.traceback


async def test_members_of_a_group_are_described(executor: ExecutorDriver) -> None:
    def fail() -> None:
        raise ExceptionGroup("several", [ValueError("a"), ExceptionGroup("in", [KeyError("b")])])

    reply = await executor.call(fail)
    assert [member.type for member in reply.error.members] == ["ValueError", "ExceptionGroup"]
    assert reply.error.members[1].members[0].type == "KeyError"
    assert isinstance(reply.exception, ExceptionGroup)


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (3, 3), ("msg", 1), (None, 0)])
async def test_sys_exit_is_told_with_its_code(
    executor: ExecutorDriver, code: object, expected: int
) -> None:
    def leave() -> None:
        import sys

        sys.exit(code)  # type: ignore[arg-type]

    reply = await executor.call(leave)
    assert reply.error.kind == "exit"
    assert reply.error.details["exit_code"] == expected
    assert reply.last.body == b""


@pytest.mark.parametrize("name", ["KeyboardInterrupt", "GeneratorExit", "BaseException"])
async def test_what_is_no_exception_is_only_described(executor: ExecutorDriver, name: str) -> None:
    source = f"raise {name}('mine')"
    reply = await executor.run_json("source", {"source": source})
    assert (reply.error.kind, reply.error.type, reply.error.message) == ("exception", name, "mine")
    assert reply.last.body == b""


async def test_an_exception_whose_str_raises_is_described(executor: ExecutorDriver) -> None:
    source = "class E(Exception):\n def __str__(self): raise KeyError\nraise E"
    reply = await executor.run_json("source", {"source": source})
    assert reply.error.type == "E"
    assert "KeyError" in reply.error.message


async def test_text_that_is_no_unicode_is_escaped(executor: ExecutorDriver) -> None:
    def fail() -> None:
        raise ValueError("né \udcff")

    reply = await executor.call(fail)
    assert reply.error.message == "né \\udcff"
    json.dumps(reply.last.header, ensure_ascii=False).encode("utf-8")


async def test_source_lines_are_in_the_traceback(executor: ExecutorDriver) -> None:
    source = "def f(x):\n    return 1 / x  # here\n"
    reply = await executor.run_json("source", {"source": source, "entrypoint": "f", "args": [0]})
    assert "return 1 / x  # here" in reply.error.traceback
    assert 'File "<source>", line 2, in f' in reply.error.traceback
    assert reply.error.traceback.count("File ") == 1


async def test_a_syntax_error_shows_its_line(executor: ExecutorDriver) -> None:
    reply = await executor.run_json("source", {"source": "x = = 1"})
    assert reply.error.type == "SyntaxError"
    assert "x = = 1" in reply.error.traceback


async def test_frames_of_the_event_loop_are_left_out(executor: ExecutorDriver) -> None:
    async def fail() -> None:
        raise ValueError("async")

    reply = await executor.call(fail)
    assert isinstance(reply.exception, ValueError)
    assert reply.error.traceback.count("File ") == 1


async def test_deep_recursion_is_an_exception_like_others(executor: ExecutorDriver) -> None:
    reply = await executor.run_json("source", {"source": "def f(): f()\nf()"})
    assert reply.error.type == "RecursionError"


def test_a_description_fits_into_a_header_whatever_was_raised() -> None:
    def grow(depth: int) -> BaseException:
        if depth == 0:
            error: BaseException = ValueError("💩" * 100_000)
            error.__dict__.update({f"attribute{i}": "x" * 10_000 for i in range(100)})
            return error
        return BaseExceptionGroup("💩" * 20_000, [grow(depth - 1) for _ in range(4)])

    info = describe(grow(4))
    encoded = json.dumps(info.to_json())
    assert len(encoded) < MAX_HEADER_BYTES
    assert len(json.dumps(info.to_json(), ensure_ascii=False)) < 2 * MAX_TOTAL


def test_an_endless_chain_of_causes_is_cut() -> None:
    first = error = ValueError("0")
    for number in range(1, 1000):
        error.__cause__ = ValueError(str(number))
        error = error.__cause__
    error.__cause__ = first
    info, length = describe(first), 0
    while info.cause is not None:
        info, length = info.cause, length + 1
    assert length < 20


async def test_a_child_that_the_function_forked_answers_nothing(executor: ExecutorDriver) -> None:
    def fork_and_return() -> str:
        import os

        child = os.fork()
        if child == 0:
            return "from the child"
        os.waitpid(child, 0)
        return "from the parent"

    reply = await executor.call(fork_and_return)
    assert reply.types == [FrameType.READY, FrameType.STARTED, FrameType.RESULT]
    assert reply.value == "from the parent"
