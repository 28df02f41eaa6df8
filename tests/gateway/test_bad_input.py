"""Whatever is sent: one clear problem that names code, field and limit, and the service goes on."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from readie_gateway.services import Limits
from readie_wire.framing import FRAME_HEADER, FrameType, encode_header, encode_message
from readie_wire.http import MEDIA_CALL, MEDIA_PROBLEM
from support import http_client
from support.gateway import Gateway, running_gateway
from support.http_client import Answer
from support.redis_servers import RedisServer

SOURCE = {"source": "x = 1"}
PAYLOAD_LIMIT = 1 << 20


@pytest.fixture
async def gateway(valkey: RedisServer, tmp_path: Path) -> AsyncIterator[Gateway]:
    limits = Limits(payload=PAYLOAD_LIMIT, queue=3)
    async with running_gateway(valkey.socket_url, tmp_path, limits=limits) as running:
        yield running
        alive = await running.invoke(SOURCE, Prefer="respond-async")
        assert alive.status in (202, 429), "the service goes on"


def problem(answer: Answer, status: int, code: str, field: str | None = None) -> dict[str, Any]:
    """The problem in an answer, which must be this one."""
    assert answer.headers["content-type"] == MEDIA_PROBLEM
    body: dict[str, Any] = answer.json()
    assert (answer.status, body["status"], body["code"]) == (status, status, code), body
    assert body["type"] == f"urn:readie:problem:{code}"
    assert body["title"]
    assert body["detail"]
    assert body["field"] == field
    return body


async def call(gateway: Gateway, header: dict[str, Any], body: bytes = b"pickle") -> Answer:
    return await send(gateway, b"".join(encode_message(FrameType.CALL, header, body)))


async def send(gateway: Gateway, body: bytes, length: int | None = None) -> Answer:
    headers = {"Content-Type": MEDIA_CALL}
    return await gateway.request("POST", "/v1/invoke", headers=headers, body=body, length=length)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (None, "no token"),
        ("Basic abc", "Bearer"),
        ("Bearer ", "Bearer"),
        ("Bearer a-token-of-somebody-else", "which file has it"),
    ],
)
async def test_a_call_without_a_good_token_is_refused(
    gateway: Gateway, header: str | None, says: str
) -> None:
    headers = {"Authorization": header} if header is not None else {}
    for path in ("/v1/calls", "/v1/workers", "/metrics", "/nowhere"):
        answer = await http_client.request(gateway.url, "GET", path, headers=headers)
        body = problem(answer, 401, "unauthenticated")
        assert says in body["detail"]
        assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "JSON object"),
        (b'{"source": "x", "args": [NaN]}', "NaN"),
        (b'{"source": "x", "args": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested"),
        (b"\xff\xfe", "not JSON"),
    ],
)
async def test_a_body_that_is_not_json_is_refused(gateway: Gateway, body: bytes, says: str) -> None:
    assert says in problem(await gateway.invoke(body), 422, "invalid_request")["detail"]


@pytest.mark.parametrize(
    ("value", "field", "says"),
    [
        ({}, "function", '"source"'),
        ({"source": "x", "function": "m:f"}, "source", '"function"'),
        ({"function": "m:f", "entrypoint": "f"}, "entrypoint", '"source"'),
        ({"function": "no colon"}, "function", '"package.module:name"'),
        ({"source": 1}, "source", "string"),
        ({"source": "x", "args": {}}, "args", "list"),
        ({"source": "x", "kwargs": []}, "kwargs", "dictionary"),
        ({"source": "x", "entrypoint": "not an identifier"}, "entrypoint", "to call"),
        ({"source": "x", "entrypont": "f"}, "entrypont", "did you mean 'entrypoint'?"),
        ({"source": "x", "values": []}, "values", "choose from source, entrypoint, function"),
        ({"source": "x", "options": []}, "options", "dictionary"),
        ({"source": "x"} | {f"x{n}": 1 for n in range(10_000)}, "x0", "is not known"),
    ],
)
async def test_a_json_call_of_the_wrong_shape_names_the_field_and_what_would_do(
    gateway: Gateway, value: object, field: str, says: str
) -> None:
    detail = problem(await gateway.invoke(value), 422, "invalid_request", field)["detail"]
    assert says in detail
    assert len(detail) < 4_000


async def test_a_misspelt_option_is_refused_by_name_with_the_right_one(gateway: Gateway) -> None:
    answer = await gateway.invoke({**SOURCE, "options": {"timeuot": 3}})
    body = problem(answer, 422, "invalid_request", "options.timeuot")
    assert "'timeuot'" in body["detail"]
    assert "'timeout'" in body["detail"]
    assert "memory" in body["limit"]


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("timeout", "soon", "number"),
        ("timeout", -1, "greater than 0"),
        ("timeout", True, "number"),
        ("timeout", 1e9, "less than or equal"),
        ("memory", "lots", "512Mi"),
        ("memory", 1, "greater than or equal"),
        ("gpu", 1, "boolean"),
        ("flavor", "tpu", "'cpu' or 'gpu'"),
        ("network", "host", "'sandbox' or 'none'"),
        ("env", {"A=B": "x"}, "pattern"),
        ("env", {"A": 1}, "string"),
        ("env", {"A": "x" * 70_000}, "65536"),
        ("checkpoint_id", "../../etc", "valid"),
        ("packages", ["numpy"], "not supported yet"),
        ("secrets", ["KEY"], "valid dictionary"),
        ("secrets", {"KEY": "value"}, "no key to seal"),
        ("retries", 11, "less than or equal to 10"),
        ("retries", -1, "greater than or equal to 0"),
        ("priority", 5, "less than or equal to 3"),
    ],
)
async def test_an_option_of_the_wrong_type_or_size_is_refused(
    gateway: Gateway, option: str, value: object, says: str
) -> None:
    answer = await gateway.invoke({**SOURCE, "options": {option: value}})
    assert answer.status == 422
    body = answer.json()
    assert body["field"].startswith(f"options.{option}")
    assert says in body["detail"]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"memory": "2G", "max_memory": "1G"}, "options.max_memory"),
        (
            {"checkpoint_id": "checkpoint_1", "disable_optimized_execution": True},
            "options.checkpoint_id",
        ),
        ({"gpu": True, "flavor": "cpu"}, "options.flavor"),
    ],
)
async def test_options_that_contradict_each_other_are_refused(
    gateway: Gateway, options: object, field: str
) -> None:
    problem(await gateway.invoke({**SOURCE, "options": options}), 422, "invalid_request", field)


GOOD = {"v": 1, "kind": "pickle", "function": "f", "python": "3.11"}


@pytest.mark.parametrize(
    ("header", "field"),
    [
        ({**GOOD, "v": 99}, "v"),
        ({**GOOD, "kind": "perl"}, "kind"),
        ({**GOOD, "kind": "source"}, "kind"),
        ({**GOOD, "python": ""}, "python"),
        ({**GOOD, "python": "three"}, "python"),
        ({**GOOD, "imports": "numpy"}, "imports"),
        ({**GOOD, "imports": ["m"] * 3_000}, "imports"),
        ({**GOOD, "options": {"cpus": 2}}, "options.cpus"),
    ],
)
async def test_a_framed_call_with_a_bad_header_names_the_field(
    gateway: Gateway, header: dict[str, Any], field: str
) -> None:
    problem(await call(gateway, header), 422, "invalid_request", field)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x02",
        b"no frames at all",
        encode_header(FrameType.CALL, GOOD),
        b"".join(encode_message(FrameType.CALL, GOOD, b"x"))[:-1],
        b"".join(encode_message(FrameType.RESULT, GOOD, b"x")),
        2 * b"".join(encode_message(FrameType.CALL, GOOD, b"x")),
        FRAME_HEADER.pack(FrameType.CALL, 2) + b"[]",
    ],
)
async def test_truncated_and_foreign_frames_are_refused(gateway: Gateway, body: bytes) -> None:
    problem(await send(gateway, body), 422, "invalid_request")


async def test_text_that_utf8_does_not_know_is_accepted_in_a_name(gateway: Gateway) -> None:
    header = json.loads(json.dumps({**GOOD, "function": "f\ud800"}))
    answer = await gateway.request(
        "POST",
        "/v1/invoke",
        headers={"Content-Type": MEDIA_CALL, "Prefer": "respond-async"},
        body=b"".join(encode_message(FrameType.CALL, header, b"x")),
    )
    assert answer.status == 202


async def test_a_payload_over_the_limit_is_refused_before_its_bytes_come(gateway: Gateway) -> None:
    answer = await send(gateway, b"", length=1 << 40)
    assert problem(answer, 413, "too_large", "body")["limit"] == PAYLOAD_LIMIT


async def test_frames_that_grow_over_the_limit_are_refused_on_the_way(gateway: Gateway) -> None:
    answer = await call(gateway, GOOD, bytes(PAYLOAD_LIMIT + 1))
    assert problem(answer, 413, "too_large")["limit"] == PAYLOAD_LIMIT


async def test_a_json_body_over_the_limit_is_refused(gateway: Gateway) -> None:
    answer = await gateway.invoke({"source": "#" * PAYLOAD_LIMIT})
    assert problem(answer, 413, "too_large", "body")["limit"] == PAYLOAD_LIMIT


async def test_other_media_types_are_refused_with_those_that_are_read(gateway: Gateway) -> None:
    answer = await gateway.request(
        "POST", "/v1/invoke", headers={"Content-Type": "text/plain"}, body=b"1 + 1"
    )
    assert MEDIA_CALL in problem(answer, 415, "unsupported_media_type", "Content-Type")["limit"]
    answer = await gateway.invoke(SOURCE, Accept="image/png")
    assert "application/json" in problem(answer, 406, "not_acceptable", "Accept")["limit"]


async def test_paths_and_methods_that_are_not_there_are_refused(gateway: Gateway) -> None:
    problem(await gateway.get("/v2/invoke"), 404, "not_found")
    problem(await gateway.get("/v1/invoke"), 405, "method_not_allowed")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/calls/unknown", 404, "not_found"),
        ("/v1/calls/a%20b", 404, "not_found"),
        ("/v1/calls/call-ffffffffffff70008000000000000000/result", 404, "not_found"),
        ("/v1/calls/call-019a228efd1470068182a79c4eaaddb5/result", 410, "result_expired"),
        ("/v1/calls/unknown/events", 404, "not_found"),
        ("/v1/catalogues/tpu", 404, "not_found"),
    ],
)
async def test_what_is_not_there_is_told_from_what_has_expired(
    gateway: Gateway, path: str, status: int, code: str
) -> None:
    headers = {"Accept": "text/event-stream"} if path.endswith("events") else {}
    problem(await gateway.request("GET", path, headers=headers), status, code)


@pytest.mark.parametrize(
    ("path", "headers", "field"),
    [
        ("/v1/calls?limit=0", {}, "limit"),
        ("/v1/calls/x/result?wait=long", {}, "wait"),
        ("/v1/calls/x/result", {"Prefer": "wait=long"}, "Prefer"),
        ("/v1/calls/x/events", {"Accept": "text/event-stream", "Last-Event-ID": "-1"}, "after"),
    ],
)
async def test_parameters_that_are_no_numbers_are_refused(
    gateway: Gateway, path: str, headers: dict[str, str], field: str
) -> None:
    answer = await gateway.request("GET", path, headers=headers)
    problem(answer, 422, "invalid_request", field)


async def test_an_idempotency_key_that_is_too_long_is_refused(gateway: Gateway) -> None:
    answer = await gateway.invoke(SOURCE, Idempotency_Key="k" * 300)
    problem(answer, 422, "invalid_request", "Idempotency-Key")


async def test_a_full_queue_is_429_and_says_when_to_come_back(gateway: Gateway) -> None:
    for _ in range(3):
        assert (await gateway.invoke(SOURCE, Prefer="respond-async")).status == 202
    answer = await gateway.invoke(SOURCE, Prefer="respond-async")
    assert problem(answer, 429, "queue_full")["limit"] == 3
    assert int(answer.headers["retry-after"]) >= 1


async def test_a_client_that_hangs_up_in_the_middle_of_its_body_leaves_nothing(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v1/invoke HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer a-token-for-the-tests\r\n"
        b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    await writer.drain()
    writer.transport.abort()
    assert (await gateway.get("/v1/calls")).json() == {"calls": []}
    assert "Traceback" not in caplog.text
