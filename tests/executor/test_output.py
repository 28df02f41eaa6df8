"""Everything a function and its children print arrives, whole and in order, whatever happens next."""

from readie_wire.framing import FrameType
from support.executor_driver import ExecutorDriver


async def test_output_that_bypasses_python_arrives_in_order(executor: ExecutorDriver) -> None:
    def say() -> None:
        import os
        import subprocess

        print("first")
        os.write(1, b"fd\n")
        subprocess.run(["echo", "child"], check=True)
        print("py")

    assert (await executor.call(say)).stdout == "first\nfd\nchild\npy\n"


async def test_the_two_streams_are_kept_apart(executor: ExecutorDriver) -> None:
    source = "import sys\nprint('out')\nprint('err', file=sys.stderr)"
    reply = await executor.run_json("source", {"source": source})
    assert (reply.stdout, reply.stderr) == ("out\n", "err\n")


async def test_any_text_can_be_printed(executor: ExecutorDriver) -> None:
    def say() -> None:
        print("žluť 💩 \udc80 \x00")

    reply = await executor.call(say)
    assert reply.raw_stdout == "žluť 💩 \\udc80 \x00\n".encode()


async def test_ten_megabytes_arrive_whole(executor: ExecutorDriver) -> None:
    reply = await executor.call(lambda: print("x" * 10_000_000))
    assert len(reply.stdout) == 10_000_001
    assert reply.value is None


async def test_an_unfinished_line_arrives_with_the_answer(executor: ExecutorDriver) -> None:
    reply = await executor.call(lambda: print("no newline", end=""))
    assert reply.stdout == "no newline"


async def test_output_of_c_code_arrives(executor: ExecutorDriver) -> None:
    def say() -> None:
        import ctypes

        ctypes.CDLL(None).printf(b"from C\n")

    assert (await executor.call(say)).stdout == "from C\n"


async def test_the_last_words_before_a_hard_exit_arrive(executor: ExecutorDriver) -> None:
    def leave() -> None:
        import os

        print("last words")
        os._exit(1)

    reply = await executor.call(leave)
    assert reply.stdout == "last words\n"
    assert reply.types == [FrameType.READY, FrameType.STARTED]


async def test_an_unfinished_line_before_a_hard_exit_arrives(executor: ExecutorDriver) -> None:
    def leave() -> None:
        import os
        import sys

        print("step 3 … ", end="")
        os.write(1, b"fd ")
        sys.stdout.buffer.write(b"bytes")
        sys.stderr.write("to stderr")
        os._exit(1)

    reply = await executor.call(leave)
    assert (reply.stdout, reply.stderr) == ("step 3 … fd bytes", "to stderr")


async def test_the_standard_streams_are_what_they_are_elsewhere(executor: ExecutorDriver) -> None:
    def look() -> list[object]:
        import sys

        return [
            (type(stream).__name__, stream.name, stream.mode, stream.encoding, stream.fileno())
            for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
            if stream is not None
        ]

    out, err = (("TextIOWrapper", f"<{name}>", "w", "utf-8") for name in ("stdout", "stderr"))
    assert (await executor.call(look)).value == [(*out, 1), (*err, 2), (*out, 1), (*err, 2)]


async def test_reading_input_ends_at_once(executor: ExecutorDriver) -> None:
    reply = await executor.call(lambda: input("name? "))
    assert isinstance(reply.exception, EOFError)
    assert reply.stdout == "name? "


async def test_a_breakpoint_is_noticed_and_passed(executor: ExecutorDriver) -> None:
    def pause() -> int:
        breakpoint()  # noqa: T100
        return 1

    reply = await executor.call(pause)
    assert reply.value == 1
    assert "breakpoint() is ignored" in reply.stderr


async def test_a_debugger_ends_at_once(executor: ExecutorDriver) -> None:
    reply = await executor.run_json("source", {"source": "import pdb\npdb.set_trace()\nx = 1"})
    assert reply.error.type == "bdb.BdbQuit"


async def test_a_function_may_close_its_streams(executor: ExecutorDriver) -> None:
    def close() -> int:
        import sys

        sys.stdout.close()
        sys.stderr.close()
        return 1

    assert (await executor.call(close)).value == 1


async def test_a_log_record_is_a_line_on_stderr(executor: ExecutorDriver) -> None:
    source = "import logging\nlogging.basicConfig()\nlogging.warning('careful')"
    assert (await executor.run_json("source", {"source": source})).stderr == (
        "WARNING:root:careful\n"
    )
