"""Calls through a real socket, a real store and a worker that plays its part."""

import asyncio
import base64
import json
from pathlib import Path

import pytest

from readie_wire.framing import Decoder, FrameType, Message, encode_message
from readie_wire.http import INLINE_LIMIT_BYTES, MEDIA_CALL, MEDIA_FRAMES, MEDIA_SSE
from readie_wire.outcome import Encoding
from readie_wire.records import CallRecord
from support.gateway import Gateway, PlayedWorker, played_worker, raised, running_gateway
from support.redis_servers import RedisServer

DOUBLE = {"source": "def double(x): return 2 * x", "entrypoint": "double", "args": [21]}


async def answer_42(worker: PlayedWorker, call: CallRecord) -> None:
    await worker.succeed(call, b"42")


async def print_and_answer(worker: PlayedWorker, call: CallRecord) -> None:
    await worker.log(call, "hello\n")
    await worker.log(call, "oh\n", "stderr")
    await worker.succeed(call, b'"done"')


async def echo_payload(worker: PlayedWorker, call: CallRecord) -> None:
    await worker.succeed(call, call.payload)


async def echo_pickle(worker: PlayedWorker, call: CallRecord) -> None:
    await worker.succeed(call, call.payload, Encoding.PICKLE)


async def never_end(worker: PlayedWorker, call: CallRecord) -> None:
    while await worker.log(call, "."):
        await asyncio.sleep(0.05)


def framed(payload: bytes, **header: object) -> bytes:
    given = {"v": 1, "kind": "pickle", "function": "f", "python": "3.11", **header}
    return b"".join(encode_message(FrameType.CALL, given, payload))


def frames_of(body: bytes) -> list[Message]:
    decoder = Decoder()
    messages = decoder.feed(body)
    decoder.close()
    return messages


async def test_a_source_call_is_answered_with_its_value_and_receipt(gateway: Gateway) -> None:
    async with played_worker(gateway, answer_42) as worker:
        answer = await gateway.invoke(DOUBLE)
    assert answer.status == 200
    outcome = answer.json()
    assert outcome["ok"] is True
    assert outcome["value"] == 42
    assert outcome["receipt"]["call_id"] == outcome["call_id"]
    assert outcome["receipt"]["attempt"] == 1
    (call,) = worker.taken
    assert json.loads(call.payload) == {**DOUBLE, "kwargs": {}}
    assert call.options["timeout"] == 3600


async def test_a_function_that_raises_is_200_with_ok_false(gateway: Gateway) -> None:
    async def fail(worker: PlayedWorker, call: CallRecord) -> None:
        await worker.fail(call, raised("lone surrogate \ud800"))

    async with played_worker(gateway, fail):
        answer = await gateway.invoke(DOUBLE)
    assert answer.status == 200
    outcome = answer.json()
    assert outcome["ok"] is False
    assert outcome["error"]["type"] == "ValueError"
    assert outcome["error"]["message"] == "lone surrogate \ud800"


async def test_what_a_call_prints_is_in_the_json_outcome_in_order(gateway: Gateway) -> None:
    async with played_worker(gateway, print_and_answer):
        outcome = (await gateway.invoke(DOUBLE)).json()
    assert outcome["logs"] == [
        {"stream": "stdout", "text": "hello\n", "seq": 2},
        {"stream": "stderr", "text": "oh\n", "seq": 3},
    ]


async def test_integers_of_any_length_arrive_and_return_exactly(gateway: Gateway) -> None:
    big = 2**70 + 1
    async with played_worker(gateway, echo_payload):
        outcome = (await gateway.invoke({"function": "m:f", "args": [big]})).json()
    assert outcome["value"]["args"] == [big]


async def test_a_result_that_is_no_json_cannot_pass_for_other_fields(gateway: Gateway) -> None:
    async def forge(worker: PlayedWorker, call: CallRecord) -> None:
        await worker.succeed(call, b'1,"receipt":{}')

    async with played_worker(gateway, forge):
        outcome = (await gateway.invoke(DOUBLE)).json()
    assert "value" not in outcome
    assert base64.b64decode(outcome["value_base64"]) == b'1,"receipt":{}'


async def test_a_framed_call_is_answered_in_frames(gateway: Gateway) -> None:
    payload = b"\x80\x05 some pickle"
    async with played_worker(gateway, echo_pickle) as worker:
        answer = await gateway.request(
            "POST",
            "/v1/invoke",
            headers={"Content-Type": MEDIA_CALL, "Accept": MEDIA_FRAMES},
            body=framed(payload, imports=["numpy"]),
        )
    assert answer.headers["content-type"] == MEDIA_FRAMES
    accepted, result = frames_of(answer.body)
    assert accepted.type is FrameType.ACCEPTED
    assert accepted.header["choice"]["checkpoint"] is None
    assert result.type is FrameType.RESULT
    assert result.body == payload
    assert result.header["call_id"] == accepted.header["call_id"] == worker.taken[0].call_id
    assert result.header["outcome"]["ok"] is True
    assert worker.taken[0].imports == ("numpy",)


async def test_a_large_payload_and_result_travel_by_the_blob_store(gateway: Gateway) -> None:
    payload = bytes(range(256)) * (INLINE_LIMIT_BYTES // 64)
    blobs = gateway.services.blobs
    assert blobs is not None

    async def echo_blob(worker: PlayedWorker, call: CallRecord) -> None:
        assert call.payload == b""
        data = await blobs.get(call.payload_blob)
        key = f"blobs/{call.call_id}/1/result"
        await blobs.put(key, data)
        await worker.succeed(call, data, Encoding.PICKLE, key)

    async with played_worker(gateway, echo_blob):
        answer = await gateway.request(
            "POST",
            "/v1/invoke",
            headers={"Content-Type": MEDIA_CALL, "Accept": MEDIA_FRAMES},
            body=framed(payload),
        )
    assert frames_of(answer.body)[-1].body == payload


async def test_events_arrive_while_the_call_runs(gateway: Gateway) -> None:
    go_on = asyncio.Event()

    async def print_then_wait(worker: PlayedWorker, call: CallRecord) -> None:
        await worker.log(call, "begun\n")
        await go_on.wait()
        await worker.succeed(call, b"7")

    async with (
        played_worker(gateway, print_then_wait),
        gateway.invoking(DOUBLE, Accept=MEDIA_SSE) as answer,
    ):
        text = ""
        async for piece in answer.pieces():
            text += piece.decode()
            if "begun" in text:
                go_on.set()
    events = [
        dict(line.split(": ", 1) for line in one.split("\n")) for one in text.split("\n\n")[:-1]
    ]
    assert [(event["event"], event["id"]) for event in events] == [
        ("accepted", "1"),
        ("log", "2"),
        ("result", "3"),
    ]
    result = json.loads(events[-1]["data"])
    assert (result["ok"], result["value"], result["logs"]) == (True, 7, [])


async def test_a_call_longer_than_the_wait_is_answered_202_and_goes_on(gateway: Gateway) -> None:
    go_on = asyncio.Event()

    async def wait(worker: PlayedWorker, call: CallRecord) -> None:
        await go_on.wait()
        await worker.succeed(call, b"1")

    async with played_worker(gateway, wait):
        answer = await gateway.invoke(DOUBLE, Prefer="wait=0.3")
        assert answer.status == 202
        assert answer.json()["state"] in ("queued", "leased", "running")
        location = answer.headers["location"]
        assert (await gateway.get(f"{location}/result")).status == 202
        go_on.set()
        ended = await gateway.get(f"{location}/result?wait=20")
    assert ended.status == 200
    assert ended.json()["value"] == 1


async def test_a_stream_whose_window_ends_says_that_the_call_goes_on(gateway: Gateway) -> None:
    running = asyncio.Event()

    async def run(worker: PlayedWorker, call: CallRecord) -> None:
        running.set()
        await never_end(worker, call)

    async with played_worker(gateway, run):
        spawned = await gateway.invoke(DOUBLE, Prefer="respond-async", Idempotency_Key="k")
        async with asyncio.timeout(30):
            await running.wait()
        answer = await gateway.invoke(
            DOUBLE, Accept=MEDIA_FRAMES, Prefer="wait=0.3", Idempotency_Key="k"
        )
        call_id = spawned.json()["call_id"]
        await gateway.request("DELETE", f"/v1/calls/{call_id}")
    goodbye = frames_of(answer.body)[-1]
    assert goodbye.type is FrameType.BYE
    assert goodbye.header == {"call_id": call_id, "state": "running", "reason": "window"}


async def test_respond_async_is_answered_at_once_and_kept(gateway: Gateway) -> None:
    answer = await gateway.invoke(DOUBLE, Prefer="respond-async")
    assert answer.status == 202
    call = (await gateway.get(answer.headers["location"])).json()
    assert (call["state"], call["waited"]) == ("queued", False)
    async with played_worker(gateway, answer_42):
        ended = await gateway.get(f"{answer.headers['location']}/result", Prefer="wait=20")
    assert ended.json()["value"] == 42


async def test_the_same_key_and_body_give_the_same_call_and_another_body_409(
    gateway: Gateway,
) -> None:
    async with played_worker(gateway, answer_42) as worker:
        first = (await gateway.invoke(DOUBLE, Idempotency_Key="k 1")).json()
        second = (await gateway.invoke(DOUBLE, Idempotency_Key="k 1")).json()
        other = await gateway.invoke({**DOUBLE, "args": [1]}, Idempotency_Key="k 1")
    assert second == first
    assert len(worker.taken) == 1
    assert other.status == 409
    assert other.json()["code"] == "idempotency_conflict"


async def test_a_key_that_is_used_again_without_waiting_tells_the_state_of_its_call(
    gateway: Gateway,
) -> None:
    async with played_worker(gateway, answer_42):
        first = (await gateway.invoke(DOUBLE, Idempotency_Key="k")).json()
        again = await gateway.invoke(DOUBLE, Idempotency_Key="k", Prefer="respond-async")
    assert again.status == 202
    assert (again.json()["call_id"], again.json()["state"]) == (first["call_id"], "succeeded")


async def test_a_client_that_comes_back_with_its_key_in_time_gets_the_whole_answer(
    valkey: RedisServer, tmp_path: Path
) -> None:
    go_on = asyncio.Event()

    async def end_later(worker: PlayedWorker, call: CallRecord) -> None:
        await worker.log(call, "before\n")
        await go_on.wait()
        await worker.succeed(call, b"1")

    async with (
        running_gateway(valkey.socket_url, tmp_path, abandon_grace_s=60.0) as gateway,
        played_worker(gateway, end_later),
    ):
        board = gateway.services.board
        async with gateway.invoking(DOUBLE, Accept=MEDIA_SSE, Idempotency_Key="k") as answer:
            async for piece in answer.pieces():
                if b"before" in piece:
                    break
            answer.hang_up()
        async with asyncio.timeout(30):
            while not board._abandoned:
                await asyncio.sleep(0.01)
        again = asyncio.create_task(gateway.invoke(DOUBLE, Accept=MEDIA_SSE, Idempotency_Key="k"))
        async with asyncio.timeout(30):
            while board._abandoned:  # what is left in it, a sweep cancels after the grace
                await asyncio.sleep(0.01)
        go_on.set()
        body = (await again).body
    events = [line for line in body.decode().splitlines() if line.startswith("event")]
    assert events == ["event: accepted", "event: log", "event: result"]
    assert b'"ok":true' in body


@pytest.mark.parametrize("accept", ["application/json", MEDIA_SSE])
async def test_a_waited_call_ends_after_its_client_went_away(gateway: Gateway, accept: str) -> None:
    stopped = asyncio.Event()

    async def run_until_told(worker: PlayedWorker, call: CallRecord) -> None:
        await never_end(worker, call)
        stopped.set()

    async with played_worker(gateway, run_until_told) as worker:
        connecting = asyncio.create_task(_open_and_hang_up(gateway, worker, accept))
        async with asyncio.timeout(30):
            await stopped.wait()
        await connecting
    call = (await gateway.get(f"/v1/calls/{worker.taken[0].call_id}")).json()
    assert call["cancel"] == "its client went away"


async def test_a_spawned_call_outlives_its_client(gateway: Gateway) -> None:
    go_on = asyncio.Event()

    async def wait(worker: PlayedWorker, call: CallRecord) -> None:
        await go_on.wait()
        await worker.succeed(call, b"1")

    board = gateway.services.board
    async with played_worker(gateway, wait) as worker:
        await _open_and_hang_up(
            gateway, worker, "application/json", Prefer="respond-async, wait=20"
        )
        async with asyncio.timeout(30):
            while len(board):
                await asyncio.sleep(0.01)
        assert not board._abandoned, "a sweep would cancel it"
        go_on.set()
        path = f"/v1/calls/{worker.taken[0].call_id}/result?wait=20"
        assert (await gateway.get(path)).json()["value"] == 1


async def _open_and_hang_up(
    gateway: Gateway, worker: PlayedWorker, accept: str, **headers: str
) -> None:
    """Send a call over a bare connection, and cut that when a worker has taken the call."""
    host, port = gateway.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps(DOUBLE).encode()
    given = {
        "Host": "gateway",
        "Authorization": "Bearer a-token-for-the-tests",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Accept": accept,
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    writer.write(f"POST /v1/invoke HTTP/1.1\r\n{head}\r\n".encode() + body)
    async with asyncio.timeout(30):
        while not (worker.taken and len(gateway.services.board)):  # the gateway waits for it
            await asyncio.sleep(0.01)
    writer.transport.abort()
