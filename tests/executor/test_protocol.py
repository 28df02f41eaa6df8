"""The conversation of worker and executor, message by message and byte by byte."""

import json
import os
import pickle
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from readie_wire.framing import BODY_TYPES, Decoder, FrameType, Message, encode_message
from support.executor_driver import ExecutorDriver, call_header

GOLDEN = Path(__file__).parent / "golden"
# What differs from run to run; the committed answers have these at nought.
VOLATILE = {"pid": 0, "python": "3.11.0", "import_ms": 0, "run_ms": 0, "peak_memory": 0}

StartExecutor = Callable[[], Awaitable[ExecutorDriver]]


def golden_question() -> bytes:
    """A call as this release's workers write it: ``abs(-3)``, pickled by reference."""
    body = pickle.dumps({"func": abs, "args": (-3,), "kwargs": {}}, protocol=5)
    header = call_header(result_limit=1024, result_encoding="pickle", timeout=60, options={})
    frames = [*encode_message(FrameType.CALL, header, body), *encode_message(FrameType.GO)]
    return b"".join(frames)


def settled(message: Message) -> bytes:
    header = {name: VOLATILE.get(name, value) for name, value in message.header.items()}
    body = message.body if message.type in BODY_TYPES else None
    return b"".join(encode_message(message.type, header, body))


def test_the_golden_question_is_what_a_worker_writes_today() -> None:
    assert golden_question() == (GOLDEN / "question.bin").read_bytes()


async def test_the_golden_question_gets_the_golden_answer(start_executor: StartExecutor) -> None:
    driver = await start_executor()
    await driver.send_bytes((GOLDEN / "question.bin").read_bytes())
    reply = await driver.finish()
    answer = (GOLDEN / "answer.bin").read_bytes()
    assert [settled(message) for message in reply.messages] == [
        settled(message) for message in Decoder().feed(answer)
    ]
    assert b"".join(settled(message) for message in reply.messages) == answer
    assert reply.value == 3


async def test_hello_says_protocol_python_process_and_mode(start_executor: StartExecutor) -> None:
    hello = await (await start_executor()).hello()
    assert hello["protocol"] == 3
    assert hello["python"] == ".".join(map(str, sys.version_info[:3]))
    assert hello["checkpoint"] is None
    assert hello["mode"] == "sandbox"
    os.kill(hello["pid"], 0)


async def test_the_answer_waits_for_go(executor: ExecutorDriver) -> None:
    body = json.dumps({"source": "result = 1"}).encode()
    await executor.send(FrameType.CALL, call_header("source"), body)
    ready = await executor.receive()
    assert ready is not None
    assert ready.type is FrameType.READY
    await executor.send(FrameType.GO)
    reply = await executor.finish()
    assert reply.types == [FrameType.STARTED, FrameType.RESULT]


async def test_started_comes_before_anything_is_unpickled(executor: ExecutorDriver) -> None:
    reply = await executor.run(b"this is no pickle")
    assert reply.types == [FrameType.READY, FrameType.STARTED, FrameType.ERROR]
    assert reply.error.kind == "serialization"


async def test_a_result_of_many_chunks_arrives_whole(executor: ExecutorDriver) -> None:
    reply = await executor.call(lambda: b"x" * (5 << 20))
    assert reply.value == b"x" * (5 << 20)
    assert reply.last.header["size"] == len(reply.last.body)


async def test_an_executor_whose_worker_is_gone_ends(start_executor: StartExecutor) -> None:
    driver = await start_executor()
    await driver.hello()
    output = driver.output()
    driver._connection.close()
    assert await output == (b"", b"")


async def test_cancel_before_go_ends_the_executor_without_running(executor: ExecutorDriver) -> None:
    await executor.send(FrameType.CALL, call_header("source"), b'{"source": "print(1)"}')
    await executor.send(FrameType.CANCEL)
    reply = await executor.finish()
    assert reply.types == [FrameType.READY]
    assert reply.stdout == ""


async def test_a_call_header_that_no_worker_writes_is_refused(executor: ExecutorDriver) -> None:
    await executor.send(FrameType.CALL, call_header("poem"), b"")
    await executor.send(FrameType.GO)
    reply = await executor.finish()
    assert reply.error.kind == "invalid_request"
    assert "poem" in reply.error.message
