"""Dead letters over HTTP: listed, shown, queued once more, dropped."""

from readie_wire.lifecycle import State
from readie_wire.outcome import ErrorInfo, ErrorKind, Outcome, Receipt
from readie_wire.records import CallRecord
from support.gateway import OTHER_TOKEN, Gateway, PlayedWorker, played_worker

LARGE = "# " + "x" * (300 << 10)  # over what travels inline
OTHERS = {"Authorization": f"Bearer {OTHER_TOKEN}"}


async def park(worker: PlayedWorker, call: CallRecord) -> None:
    error = ErrorInfo(ErrorKind.SANDBOX_DIED, "readie.SandboxDiedError", "it was killed")
    await worker.log(call, "almost there\n")
    await worker.store.finish(
        call.call_id,
        worker.record.boot,
        call.attempt,
        State.DEAD,
        Outcome(ok=False, receipt=Receipt(call.call_id), error=error),
    )


async def one(worker: PlayedWorker, call: CallRecord) -> None:
    await worker.succeed(call, b"1")


async def parked(gateway: Gateway, source: str = "result = 1") -> str:
    async with played_worker(gateway, park):
        answer = await gateway.invoke({"source": source})
    assert (answer.status, answer.json()["state"]) == (200, "dead")
    return str(answer.json()["call_id"])


async def test_a_parked_call_is_listed_and_shown_with_its_last_words(gateway: Gateway) -> None:
    call_id = await parked(gateway)
    [letter] = (await gateway.get("/v1/dead")).json()["dead"]
    assert (letter["call_id"], letter["reason"]) == (call_id, "it was killed")
    shown = (await gateway.get(f"/v1/dead/{call_id}")).json()
    assert shown["last_words"] == "almost there\n"
    assert shown["call"]["state"] == "dead"


async def test_it_is_queued_once_more_under_a_new_id(gateway: Gateway) -> None:
    call_id = await parked(gateway, LARGE + "\nresult = 1")
    answer = await gateway.request("POST", f"/v1/dead/{call_id}/requeue")
    assert answer.status == 202
    again = answer.json()["call_id"]
    assert again != call_id
    repeated = await gateway.request("POST", f"/v1/dead/{call_id}/requeue")  # its answer was lost
    assert (repeated.status, repeated.json()["call_id"]) == (202, again)
    async with played_worker(gateway, one) as worker:
        ended = await gateway.get(f"/v1/calls/{again}/result?wait=20")
    assert ended.json()["value"] == 1
    blobs = gateway.services.blobs
    assert blobs is not None
    assert LARGE.encode() in await blobs.get(worker.taken[0].payload_blob)
    assert again in worker.taken[0].payload_blob
    assert (await gateway.get("/v1/dead")).json()["dead"] == []


async def test_it_is_dropped_once(gateway: Gateway) -> None:
    call_id = await parked(gateway)
    assert (await gateway.request("DELETE", f"/v1/dead/{call_id}")).status == 200
    assert (await gateway.request("DELETE", f"/v1/dead/{call_id}")).status == 404


async def test_other_tokens_know_nothing_of_it(gateway: Gateway) -> None:
    call_id = await parked(gateway)
    theirs = await gateway.request("GET", "/v1/dead", headers=OTHERS)
    assert theirs.json()["dead"] == []
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/requeue")):
        theirs = await gateway.request(method, f"/v1/dead/{call_id}{path}", headers=OTHERS)
        assert theirs.status == 404


async def test_a_record_that_cannot_be_read_can_only_be_dropped(gateway: Gateway) -> None:
    call_id = await parked(gateway)
    await gateway.services.store._steps.ask("HSET", f"readie:call:{call_id}", "options", "{")
    assert (await gateway.get(f"/v1/dead/{call_id}")).json()["call"] is None
    refused = await gateway.request("POST", f"/v1/dead/{call_id}/requeue")
    assert (refused.status, refused.json()["field"]) == (422, "call_id")
    assert (await gateway.request("DELETE", f"/v1/dead/{call_id}")).status == 200
