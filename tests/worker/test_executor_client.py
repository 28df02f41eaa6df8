"""The protocol as the worker speaks it, against a peer that the test plays."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable

import pytest

from readie_wire.framing import FrameType, encode_frame, encode_message
from readie_wire.versions import PROTOCOL_VERSION
from readie_worker.errors import NotStartedError
from readie_worker.executor_client import ONE_WRITE_BYTES, ExecutorConnection

SOON = 0.05  # seconds; for what must not arrive
SURELY = 20.0  # seconds; for what must

HELLO = {"protocol": PROTOCOL_VERSION, "python": "3.11.7", "pid": 7}


class Peer:
    """The executor's end of the connection."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._loop = asyncio.get_running_loop()

    async def say(self, *messages: Iterable[bytes]) -> None:
        data = b"".join(frame for frames in messages for frame in frames)
        await self._loop.sock_sendall(self._end, data)

    async def hear(self) -> bytes:
        return await self._loop.sock_recv(self._end, 1 << 20)

    def leave(self) -> None:
        self._end.close()


@pytest.fixture
async def pair() -> AsyncIterator[tuple[ExecutorConnection, Peer]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection = await ExecutorConnection.open(ours, max_body=1000)
    peer = Peer(theirs)
    yield connection, peer
    connection.close()
    peer.leave()
    await asyncio.wait({connection.closed}, timeout=SURELY)


Pair = tuple[ExecutorConnection, Peer]


def started() -> list[Iterable[bytes]]:
    return [
        encode_message(FrameType.HELLO, HELLO),
        encode_message(FrameType.READY),
        encode_message(FrameType.STARTED),
    ]


async def test_a_call_goes_out_with_go_and_its_answer_comes_in(pair: Pair) -> None:
    connection, peer = pair
    await peer.say(encode_message(FrameType.HELLO, HELLO))
    assert (await connection.hello(SURELY)).python == "3.11.7"
    await connection.send_call({"v": 1}, b"body", go=True, within=SURELY)
    heard = await peer.hear()
    assert heard == b"".join(
        [*encode_message(FrameType.CALL, {"v": 1}, b"body"), *encode_message(FrameType.GO)]
    )
    await peer.say(
        encode_message(FrameType.READY),
        encode_message(FrameType.STARTED),
        encode_message(FrameType.RESULT, {"run_ms": 1}, b"value"),
    )
    message = await asyncio.wait_for(connection.ended, SURELY)
    assert message is not None
    assert message.body == b"value"
    assert connection.started


async def test_an_executor_of_another_protocol_is_refused_by_number(pair: Pair) -> None:
    connection, peer = pair
    await peer.say(encode_message(FrameType.HELLO, {**HELLO, "protocol": 99}))
    with pytest.raises(NotStartedError, match=r"protocol 99; this worker speaks 3"):
        await connection.hello(SURELY)


async def test_an_executor_that_says_nothing_is_given_up(pair: Pair) -> None:
    connection, _ = pair
    with pytest.raises(NotStartedError, match="did not connect within"):
        await connection.hello(SOON)


async def test_an_executor_that_leaves_before_the_call_did_not_start(pair: Pair) -> None:
    connection, peer = pair
    await peer.say(encode_message(FrameType.HELLO, HELLO))
    await connection.hello(SURELY)
    peer.leave()
    with pytest.raises(NotStartedError, match="closed its connection"):
        await connection.ready(SURELY)
    assert connection.drained
    assert not connection.started
    with pytest.raises(NotStartedError):
        await connection.send_call({}, b"", go=True, within=SURELY)


async def test_what_was_said_before_the_end_is_known_after_it(pair: Pair) -> None:
    connection, peer = pair
    await peer.say(*started())
    peer.leave()
    assert await asyncio.wait_for(connection.ended, SURELY) is None
    await asyncio.wait_for(connection.closed, SURELY)
    assert connection.started
    assert connection.drained


async def test_a_connection_that_we_dropped_may_have_said_more_than_we_know(pair: Pair) -> None:
    connection, _ = pair
    connection.close()
    await asyncio.wait_for(connection.closed, SURELY)
    assert not connection.drained


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        (encode_frame(FrameType.GO, b"{}"), "GO is out of turn"),
        (b"\xff" + bytes(8), "unknown frame type 255"),
        (encode_frame(FrameType.LOG, b"[1]"), "not a JSON object"),
        (
            b"".join(encode_message(FrameType.RESULT, {}, b"x" * 2000)),
            "the limit is 1000",
        ),
        (encode_frame(FrameType.HELLO, b"{}"), "HELLO is out of turn"),
    ],
)
async def test_a_sandbox_that_breaks_the_protocol_is_as_good_as_gone(
    pair: Pair, frames: bytes, problem: str
) -> None:
    connection, peer = pair
    await peer.say(*started(), [frames])
    assert await asyncio.wait_for(connection.ended, SURELY) is None
    assert problem in connection.problem


async def test_started_before_the_call_was_read_is_out_of_turn(pair: Pair) -> None:
    connection, peer = pair
    await peer.say(encode_message(FrameType.HELLO, HELLO), encode_message(FrameType.STARTED))
    assert await asyncio.wait_for(connection.ended, SURELY) is None
    assert not connection.started


async def test_a_large_call_waits_for_its_reader(pair: Pair) -> None:
    connection, peer = pair
    body = b"x" * (8 * ONE_WRITE_BYTES)
    sending = asyncio.create_task(connection.send_call({}, body, go=True, within=SURELY))
    heard = 0
    while heard < len(body):
        heard += len(await peer.hear())
    await asyncio.wait_for(sending, SURELY)


async def test_a_large_call_that_nobody_reads_is_given_up(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, _ = pair
    monkeypatch.setattr("readie_worker.executor_client.SLOWEST_BYTES_PER_S", 1 << 40)
    with pytest.raises(NotStartedError, match="does not read"):
        await connection.send_call({}, b"x" * (8 * ONE_WRITE_BYTES), go=True, within=SOON)
