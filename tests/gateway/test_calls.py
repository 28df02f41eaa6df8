"""Calls after they were accepted: asked for, followed, cancelled, expired."""

import asyncio
import json

import pytest

from readie_wire.framing import Decoder, FrameType
from readie_wire.http import MEDIA_FRAMES, MEDIA_SSE
from readie_wire.records import CallRecord
from support import http_client
from support.gateway import OTHER_TOKEN, Gateway, PlayedWorker, played_worker

CALL = {"function": "m:f"}


async def print_and_answer(worker: PlayedWorker, call: CallRecord) -> None:
    await worker.log(call, "one\n")
    await worker.log(call, "two\n")
    await worker.succeed(call, b"[1]")


async def spawn(gateway: Gateway, **options: object) -> str:
    answer = await gateway.invoke({**CALL, "options": options}, Prefer="respond-async")
    assert answer.status == 202, answer.body
    return str(answer.json()["call_id"])


async def run_one(gateway: Gateway) -> str:
    call_id = await spawn(gateway)
    async with played_worker(gateway, print_and_answer):
        assert (await gateway.get(f"/v1/calls/{call_id}/result?wait=20")).status == 200
    return call_id


def sse(body: bytes) -> list[dict[str, str]]:
    blocks = body.decode().split("\n\n")[:-1]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


async def test_calls_of_a_token_are_listed_the_newest_first(gateway: Gateway) -> None:
    first, second = await spawn(gateway), await spawn(gateway)
    calls = (await gateway.get("/v1/calls")).json()["calls"]
    assert [call["call_id"] for call in calls] == [second, first]
    assert [
        call["call_id"] for call in (await gateway.get("/v1/calls?limit=1")).json()["calls"]
    ] == [second]


async def test_another_tokens_call_is_as_unknown_as_none(gateway: Gateway) -> None:
    call_id = await spawn(gateway)
    headers = {"Authorization": f"Bearer {OTHER_TOKEN}"}
    for method, path in (
        ("GET", f"/v1/calls/{call_id}"),
        ("GET", f"/v1/calls/{call_id}/result"),
        ("DELETE", f"/v1/calls/{call_id}"),
    ):
        answer = await http_client.request(gateway.url, method, path, headers=headers)
        assert answer.status == 404
    listed = await http_client.request(gateway.url, "GET", "/v1/calls", headers=headers)
    assert listed.json() == {"calls": []}
    assert (await gateway.get(f"/v1/calls/{call_id}")).json()["state"] == "queued"


async def test_an_ended_call_shows_its_receipt(gateway: Gateway) -> None:
    call = (await gateway.get(f"/v1/calls/{await run_one(gateway)}")).json()
    assert (call["state"], call["ok"], call["error"]) == ("succeeded", True, None)
    assert call["receipt"]["attempt"] == 1
    assert call["receipt"]["total_ms"] > 0
    assert call["created_ms"] <= call["started_ms"] <= call["finished_ms"]


async def test_the_result_can_be_asked_for_again_also_in_frames(gateway: Gateway) -> None:
    path = f"/v1/calls/{await run_one(gateway)}/result"
    first, again = await gateway.get(path), await gateway.get(path)
    assert first.json() == again.json()
    assert [line["text"] for line in first.json()["logs"]] == ["one\n", "two\n"]
    framed = await gateway.get(path, Accept=MEDIA_FRAMES)
    (message,) = Decoder().feed(framed.body)
    assert message.type is FrameType.RESULT
    assert message.body == b"[1]"


async def test_events_are_replayed_after_the_last_one_that_is_known(gateway: Gateway) -> None:
    path = f"/v1/calls/{await run_one(gateway)}/events"
    whole = sse((await gateway.get(path, Accept=MEDIA_SSE)).body)
    assert [event["event"] for event in whole] == ["accepted", "log", "log", "result"]
    rest = await gateway.get(path, Accept=MEDIA_SSE, Last_Event_ID="2")
    assert sse(rest.body) == whole[2:]
    framed = Decoder().feed((await gateway.get(f"{path}?after=3", Accept=MEDIA_FRAMES)).body)
    assert [message.type for message in framed] == [FrameType.RESULT]
    nothing = await gateway.get(path, Accept=MEDIA_SSE, Last_Event_ID="4")
    assert nothing.status == 204


async def test_two_clients_can_follow_one_call(gateway: Gateway) -> None:
    call_id = await spawn(gateway)
    path = f"/v1/calls/{call_id}"
    followers = asyncio.gather(
        gateway.get(f"{path}/events", Accept=MEDIA_SSE), gateway.get(f"{path}/result?wait=20")
    )
    await asyncio.sleep(0)
    async with played_worker(gateway, print_and_answer):
        streamed, ended = await followers
    assert json.loads(sse(streamed.body)[-1]["data"])["value"] == ended.json()["value"] == [1]


async def test_a_queued_call_is_cancelled_at_once(gateway: Gateway) -> None:
    call_id = await spawn(gateway)
    cancelled = await gateway.request("DELETE", f"/v1/calls/{call_id}")
    assert (cancelled.status, cancelled.json()["state"]) == (200, "cancelled")
    outcome = (await gateway.get(f"/v1/calls/{call_id}/result")).json()
    assert (outcome["ok"], outcome["error"]["kind"]) == (False, "cancelled")
    again = await gateway.request("DELETE", f"/v1/calls/{call_id}")
    assert (again.status, again.json()["state"]) == (200, "cancelled")


async def test_a_running_calls_worker_is_told_to_cancel(gateway: Gateway) -> None:
    running, told = asyncio.Event(), asyncio.Event()

    async def run_until_told(worker: PlayedWorker, call: CallRecord) -> None:
        while await worker.log(call, "."):
            running.set()
            await asyncio.sleep(0.02)
        told.set()

    call_id = await spawn(gateway)
    async with played_worker(gateway, run_until_told):
        async with asyncio.timeout(30):
            await running.wait()
            answer = await gateway.request("DELETE", f"/v1/calls/{call_id}")
            await told.wait()
    assert (answer.status, answer.json()["state"]) == (202, "running")


async def test_a_result_that_has_expired_is_410_at_once(gateway: Gateway) -> None:
    call_id = await spawn(gateway, result_ttl=600)
    async with played_worker(gateway, print_and_answer):
        assert (await gateway.get(f"/v1/calls/{call_id}/result?wait=20")).status == 200
    ask, key = gateway.services.store._steps.ask, f"readie:call:{call_id}"
    assert 0 < await ask("PTTL", key) <= 600_000
    await ask("PEXPIRE", key, "0")
    async with asyncio.timeout(30):  # an id of this second cannot have expired: it is made up
        while (answer := await gateway.get(f"/v1/calls/{call_id}/result?wait=20")).status == 404:
            await asyncio.sleep(0.05)
    assert (answer.status, answer.json()["code"]) == (410, "result_expired")


@pytest.mark.parametrize("accept", ["application/json", MEDIA_SSE])
async def test_a_call_that_nobody_takes_is_told_so_with_what_is_lacking(
    gateway: Gateway, accept: str
) -> None:
    call = {**CALL, "options": {"queue_timeout": 0.2}}
    answer = await gateway.invoke(call, Accept=accept)
    if accept == MEDIA_SSE:
        result = json.loads(sse(answer.body)[-1]["data"])
        assert (result["ok"], result["error"]["kind"]) == (False, "expired")
        return
    body = answer.json()
    assert (answer.status, body["code"]) == (503, "no_worker")
    assert "0.2 s" in body["detail"]
    assert "there is no cpu worker" in body["detail"]
