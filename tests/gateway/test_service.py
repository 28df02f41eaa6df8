"""The service itself: health, schema, metrics, a store that goes away, a stop while calls wait."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from readie_gateway.auth import OPEN_PATHS
from readie_gateway.openapi import openapi_document
from readie_wire.http import INLINE_LIMIT_BYTES, MEDIA_FRAMES
from readie_wire.records import CallRecord
from support import http_client
from support.gateway import Gateway, PlayedWorker, played_worker, running_gateway
from support.redis_servers import RedisServer

CALL = {"source": "x = 1"}


async def answer_1(worker: PlayedWorker, call: CallRecord) -> None:
    await worker.succeed(call, b"1")


async def test_health_and_schema_need_no_token(gateway: Gateway) -> None:
    for path in OPEN_PATHS:
        assert (await http_client.request(gateway.url, "GET", path)).status == 200


async def test_readiness_warns_of_no_worker_and_of_a_store_that_may_drop_calls(
    gateway: Gateway, valkey: RedisServer
) -> None:
    try:
        valkey.command("CONFIG", "SET", "maxmemory", "1gb")
        valkey.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        ready = (await gateway.get("/readyz")).json()
    finally:
        valkey.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        valkey.command("CONFIG", "SET", "maxmemory", "0")
    assert (ready["ready"], ready["down"]) == (True, [])
    assert any("no worker" in warning for warning in ready["warnings"])
    assert any("noeviction" in warning for warning in ready["warnings"])


async def test_a_store_that_is_down_is_503_named_and_everything_goes_on_when_it_is_back(
    own_valkey: Callable[..., RedisServer], tmp_path: Path
) -> None:
    server = own_valkey()
    async with running_gateway(server.url, tmp_path) as gateway:
        async with played_worker(gateway, answer_1):
            assert (await gateway.invoke(CALL)).status == 200
        server.kill()
        answer = await gateway.invoke(CALL)
        assert (answer.status, answer.json()["code"]) == (503, "store_unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        ready = await gateway.get("/readyz")
        assert (ready.status, ready.json()["down"]) == (503, ["store"])
        assert (await gateway.get("/healthz")).status == 200
        server.start()
        async with played_worker(gateway, answer_1):
            assert (await gateway.invoke(CALL)).json()["value"] == 1
        assert (await gateway.get("/readyz")).status == 200


async def test_a_gateway_starts_without_its_store(
    own_valkey: Callable[..., RedisServer], tmp_path: Path
) -> None:
    server = own_valkey()
    server.stop()
    async with running_gateway(server.url, tmp_path) as gateway:
        assert (await gateway.invoke(CALL)).status == 503
        server.start()
        async with played_worker(gateway, answer_1):
            assert (await gateway.invoke(CALL)).json()["value"] == 1


async def test_requests_that_wait_are_answered_when_the_gateway_is_stopped(
    valkey: RedisServer, tmp_path: Path
) -> None:
    async with running_gateway(valkey.url, tmp_path) as gateway:
        waiting = asyncio.create_task(gateway.invoke(CALL))
        streaming = asyncio.create_task(gateway.invoke(CALL, Accept=MEDIA_FRAMES))
        async with asyncio.timeout(30):
            while len(gateway.services.board) < 2:
                await asyncio.sleep(0.01)
        gateway.server.should_exit = True
        answer, stream = await waiting, await streaming
    assert (answer.status, answer.json()["reason"]) == (202, "shutdown")
    assert b'"shutdown"' in stream.body


async def test_requests_and_calls_are_counted_by_route(gateway: Gateway) -> None:
    async with played_worker(gateway, answer_1):
        await gateway.invoke(CALL)
        await gateway.get("/v1/calls/unknown")
        text = (await gateway.get("/metrics")).body.decode()
    assert 'readie_gateway_requests_total{route="/v1/invoke",status="200"} 1.0' in text
    assert 'readie_gateway_requests_total{route="/v1/calls/{call_id}",status="404"} 1.0' in text
    assert 'readie_gateway_calls_total{choice="cold",flavor="cpu"} 1.0' in text
    assert "readie_gateway_workers 1.0" in text


async def test_every_route_of_the_app_is_in_the_schema(gateway: Gateway) -> None:
    app = gateway.server.config.app
    routed = {
        (route.path, method.lower())
        for route in app.routes  # type: ignore[union-attr]
        for method in route.methods - {"HEAD"}
    }
    document = openapi_document()
    assert routed == {
        (path, method) for path, methods in document["paths"].items() for method in methods
    }


async def test_every_reference_of_the_schema_leads_somewhere(gateway: Gateway) -> None:
    document = (await gateway.get("/openapi.json")).json()
    names = set(references(document))
    assert names
    assert names <= {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        here = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return here + [found for inner in value.values() for found in references(inner)]
    if isinstance(value, list):
        return [found for inner in value for found in references(inner)]
    return []


async def test_a_blob_store_that_cannot_be_written_is_503_for_large_calls_only(
    gateway: Gateway, tmp_path: Path
) -> None:
    (tmp_path / "blobs").write_text("a file where a folder should be")
    large = {"source": f"x = '{'a' * INLINE_LIMIT_BYTES}'"}
    answer = await gateway.invoke(large, Prefer="respond-async")
    assert (answer.status, answer.json()["code"]) == (503, "store_unavailable")
    assert (await gateway.invoke(CALL, Prefer="respond-async")).status == 202


async def test_a_store_whose_memory_is_full_refuses_new_calls_with_the_reason(
    gateway: Gateway, valkey: RedisServer
) -> None:
    try:
        valkey.command("CONFIG", "SET", "maxmemory", "1mb")
        answer = await gateway.invoke(CALL)
    finally:
        valkey.command("CONFIG", "SET", "maxmemory", "0")
    assert (answer.status, answer.json()["code"]) == (503, "store_unavailable")
    assert "memory_full" in answer.json()["detail"]
