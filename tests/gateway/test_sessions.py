"""Sessions over HTTP: opened, listed, ended; what is unknown, over, busy or not theirs is told apart."""

import asyncio
import json
from typing import Any

import pytest

from readie_infra.store import Limits
from readie_wire.keys import new_session_id
from readie_wire.lifecycle import State
from readie_wire.records import CallRecord
from support.gateway import OTHER_TOKEN, Gateway, PlayedWorker, played_worker
from support.http_client import Answer

SOURCE = "result = 1"
OTHERS = {"Authorization": f"Bearer {OTHER_TOKEN}"}


async def post(gateway: Gateway, options: dict[str, Any], **headers: str) -> Answer:
    body = json.dumps({"options": options}).encode()
    given = {"Content-Type": "application/json", **headers}
    return await gateway.request("POST", "/v1/sessions", headers=given, body=body)


async def opened(gateway: Gateway, **options: Any) -> str:
    answer = await post(gateway, options)
    assert answer.status == 201, answer.json()
    return str(answer.json()["session_id"])


async def invoke(gateway: Gateway, session: str, **options: Any) -> Answer:
    return await gateway.invoke({"source": SOURCE, "options": {"session": session, **options}})


async def one(worker: PlayedWorker, call: CallRecord) -> None:
    await worker.succeed(call, b"1")


async def test_a_session_is_opened_listed_and_ended(gateway: Gateway) -> None:
    answer = await post(gateway, {"memory": "512Mi"})
    session = answer.json()["session_id"]
    assert answer.headers["location"] == f"/v1/sessions/{session}"
    assert answer.json()["options"] == {"memory": 512 << 20}
    listed = (await gateway.get("/v1/sessions")).json()["sessions"]
    assert [found["session_id"] for found in listed] == [session]
    for _ in range(2):  # ending it again changes nothing
        ended = await gateway.request("DELETE", f"/v1/sessions/{session}")
        assert (ended.status, ended.json()["state"]) == (200, "ended")
    assert (await gateway.get("/v1/sessions")).json()["sessions"] == []
    shown = (await gateway.get(f"/v1/sessions/{session}")).json()
    assert (shown["state"], shown["reason"]) == ("ended", "it was ended by its caller")


async def test_a_call_takes_the_sandbox_options_of_its_session(gateway: Gateway) -> None:
    session = await opened(gateway, memory="512Mi", network="none")
    async with played_worker(gateway, one) as worker:
        answer = await invoke(gateway, session, timeout=5)
        assert (answer.status, answer.json()["value"]) == (200, 1)
    options = worker.taken[0].options
    assert (options["memory"], options["network"], options["timeout"]) == (512 << 20, "none", 5)
    assert worker.taken[0].session == session
    view = (await gateway.get(f"/v1/calls/{worker.taken[0].call_id}")).json()
    assert view["session"] == session


async def test_an_option_that_is_the_sessions_to_say_is_refused(gateway: Gateway) -> None:
    session = await opened(gateway, memory="512Mi")
    answer = await invoke(gateway, session, memory="2Gi")
    assert (answer.status, answer.json()["field"]) == (422, "options.memory")
    same = await gateway.invoke(
        {"source": SOURCE, "options": {"session": session, "memory": "512Mi"}},
        Prefer="respond-async",
    )
    assert same.status == 202


async def test_a_call_of_a_session_is_never_retried(gateway: Gateway) -> None:
    session = await opened(gateway)
    answer = await invoke(gateway, session, retries=1)
    assert (answer.status, answer.json()["field"]) == (422, "options.retries")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"timeout": 3}, "options.timeout"),
        ({"memori": 3}, "options.memori"),
        ({"memory": "much"}, "options.memory"),
    ],
)
async def test_what_no_session_has_is_refused_by_name(
    gateway: Gateway, options: dict[str, Any], field: str
) -> None:
    answer = await post(gateway, options)
    assert (answer.status, answer.json()["field"]) == (422, field)


async def test_a_session_larger_than_every_worker_is_refused(gateway: Gateway) -> None:
    async with played_worker(gateway, one):
        answer = await post(gateway, {"memory": "64Gi"})
    assert (answer.status, answer.json()["code"]) == (503, "no_worker")


async def test_unknown_ended_and_other_peoples_sessions_are_told_apart(gateway: Gateway) -> None:
    session = await opened(gateway)
    unknown = await invoke(gateway, new_session_id())
    assert (unknown.status, unknown.json()["code"]) == (404, "not_found")
    malformed = await invoke(gateway, "../x")
    assert (malformed.status, malformed.json()["field"]) == (422, "options.session")
    theirs = await gateway.request("GET", f"/v1/sessions/{session}", headers=OTHERS)
    assert theirs.status == 404
    theirs = await gateway.request("DELETE", f"/v1/sessions/{session}", headers=OTHERS)
    assert theirs.status == 404
    await gateway.request("DELETE", f"/v1/sessions/{session}")
    over = await invoke(gateway, session)
    assert (over.status, over.json()["code"]) == (410, "session_expired")
    assert "it was ended by its caller" in over.json()["detail"]


async def test_a_call_asked_for_again_is_known_though_its_session_has_ended(
    gateway: Gateway,
) -> None:
    """It was accepted and its answer lost: told that it was refused, its caller would run it again."""
    session = await opened(gateway)
    body = {"source": SOURCE, "options": {"session": session}}
    asked = {"Idempotency-Key": "k", "Prefer": "respond-async"}
    accepted = await gateway.invoke(body, **asked)
    await gateway.request("DELETE", f"/v1/sessions/{session}")
    gateway.services.sessions._known.clear()  # as in a gateway that has just been started
    again = await gateway.invoke(body, **asked)
    assert again.json()["call_id"] == accepted.json()["call_id"]
    assert (await invoke(gateway, session)).status == 410


async def test_when_no_more_sessions_may_be_open_the_refusal_says_when_to_come_back(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway.services.store, "_limits", Limits(sessions=1))
    await opened(gateway)
    answer = await post(gateway, {})
    assert (answer.status, answer.headers["retry-after"]) == (429, "10")


async def test_a_call_that_is_cancelled_while_it_waits_leaves_its_session_open(
    gateway: Gateway,
) -> None:
    session = await opened(gateway)
    running = asyncio.Event()

    async def hold(worker: PlayedWorker, call: CallRecord) -> None:
        running.set()
        await asyncio.Event().wait()

    async with played_worker(gateway, hold):
        body = {"source": SOURCE, "options": {"session": session}}
        await gateway.invoke(body, Prefer="respond-async")
        await running.wait()
        waiting = (await gateway.invoke(body, Prefer="respond-async")).json()["call_id"]
        cancelled = await gateway.request("DELETE", f"/v1/calls/{waiting}")
        assert (cancelled.status, cancelled.json()["state"]) == (200, "cancelled")
        found = (await gateway.get(f"/v1/sessions/{session}")).json()
        assert (found["state"], found["waiting"]) == ("open", 0)


async def test_an_idle_session_expires(gateway: Gateway) -> None:
    session = await opened(gateway)
    await gateway.services.store._steps.ask("ZADD", "readie:sessions", "1", session)
    async with asyncio.timeout(30):
        while (await gateway.get(f"/v1/sessions/{session}")).json()["state"] == "open":
            await asyncio.sleep(0.05)
    assert (await invoke(gateway, session)).status == 410


async def test_a_busy_session_answers_429(gateway: Gateway) -> None:
    session = await opened(gateway)
    running = asyncio.Event()

    async def hold(worker: PlayedWorker, call: CallRecord) -> None:
        running.set()
        await asyncio.Event().wait()

    async with played_worker(gateway, hold):
        await gateway.invoke(
            {"source": SOURCE, "options": {"session": session}}, Prefer="respond-async"
        )
        await running.wait()
        at_once = await invoke(gateway, session, queue_timeout=0)
        assert (at_once.status, at_once.json()["code"]) == (429, "session_busy")
        assert at_once.headers["retry-after"] == "1"
        late = await invoke(gateway, session, queue_timeout=0.1)
        assert (late.status, late.json()["code"]) == (429, "session_busy")
        assert late.headers["retry-after"] == "1"


async def test_a_call_that_waits_is_told_when_its_session_ends(gateway: Gateway) -> None:
    session = await opened(gateway)
    call = asyncio.create_task(invoke(gateway, session))
    async with asyncio.timeout(30):
        while not (await gateway.get(f"/v1/sessions/{session}")).json()["running"]:
            await asyncio.sleep(0.02)
    await gateway.request("DELETE", f"/v1/sessions/{session}")
    answer = await call
    assert (answer.status, answer.json()["code"]) == (410, "session_expired")
    snapshot = await gateway.services.store.read(answer.json()["call_id"])
    assert snapshot is not None
    assert snapshot.record.state is State.FAILED
