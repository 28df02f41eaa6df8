"""What calls import is counted for the pipeline: modules, never code, never whose."""

import json
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from readie_gateway import recording
from readie_gateway.recording import MAX_SET_BYTES, MAX_UNWRITTEN, ImportLedger, import_set
from readie_gateway.settings import GatewaySettings
from readie_infra.connecting import connect
from readie_infra.errors import StoreUnavailableError
from readie_infra.store import CallStore
from readie_wire.envelope import CallHeader, CallKind
from readie_wire.framing import FrameType, encode_message
from readie_wire.http import MEDIA_CALL
from readie_wire.records import CallRecord
from support.gateway import Gateway, PlayedWorker, played_worker, running_gateway
from support.redis_servers import RedisServer

DAYS = 3


@pytest.fixture(autouse=True)
def one_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """No midnight comes in the middle of a test."""
    monkeypatch.setattr(recording, "_today", lambda: date(2026, 1, 2))


@pytest.fixture
async def gateway(valkey: RedisServer, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(valkey.socket_url, tmp_path, record_imports_days=DAYS) as running:
        yield running


@pytest.fixture
async def worker(gateway: Gateway) -> AsyncIterator[PlayedWorker]:
    async with played_worker(gateway, answer_1) as playing:
        yield playing


async def answer_1(worker: PlayedWorker, call: CallRecord) -> None:
    await worker.succeed(call, b"1")


async def recorded(gateway: Gateway, query: str = "") -> list[dict[str, Any]]:
    answer = await gateway.get(f"/v1/imports{query}")
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.body.splitlines()]


def header(*imports: str, modules: tuple[str, ...] = ()) -> CallHeader:
    return CallHeader(CallKind.PICKLE, "f", "3.11", imports, modules=modules)


async def test_equal_imports_are_one_set_with_a_count(
    gateway: Gateway, worker: PlayedWorker
) -> None:
    for source in ("import pandas, os, numpy", "import numpy\nimport pandas", "result = 1"):
        assert (await gateway.invoke({"source": source})).status == 200
    first, second = await recorded(gateway, "?days=1")
    assert (first["imports"], first["count"]) == (["numpy", "pandas"], 2)
    assert (second["imports"], second["count"]) == ([], 1)
    assert set(first) == {"imports", "count", "day"}


async def test_what_is_stored_holds_no_code_no_argument_and_no_token(
    gateway: Gateway, worker: PlayedWorker, valkey: RedisServer
) -> None:
    source = "import numpy\ndef confidential(x): return x"
    call = {"source": source, "entrypoint": "confidential", "args": ["an argument"]}
    assert (await gateway.invoke(call)).status == 200
    (line,) = await recorded(gateway)
    client = connect(valkey.socket_url)
    stored = await client.hgetall(f"readie:imports:{line['day']}")
    await client.aclose()
    assert stored == {b'["numpy"]': b"1"}


async def test_the_callers_own_modules_are_left_out(gateway: Gateway, worker: PlayedWorker) -> None:
    sent = header("numpy", "helper.sums", "helpers", modules=("helper",))
    body = b"".join(encode_message(FrameType.CALL, sent.to_json(), b"pickle"))
    answer = await gateway.request(
        "POST", "/v1/invoke", headers={"Content-Type": MEDIA_CALL}, body=body
    )
    assert answer.status == 200, answer.body
    assert [line["imports"] for line in await recorded(gateway)] == [["helpers", "numpy"]]


@pytest.mark.parametrize("days", ["0", "4", "many", "-1"])
async def test_days_that_are_not_kept_are_refused_with_those_that_are(
    gateway: Gateway, days: str
) -> None:
    answer = await gateway.get(f"/v1/imports?days={days}")
    assert (answer.status, answer.json()["field"], answer.json()["limit"]) == (422, "days", DAYS)


async def test_a_gateway_that_is_told_to_keep_none_says_so(
    valkey: RedisServer, tmp_path: Path
) -> None:
    async with (
        running_gateway(valkey.socket_url, tmp_path, record_imports_days=0) as gateway,
        played_worker(gateway, answer_1),
    ):
        assert (await gateway.invoke({"source": "import numpy"})).status == 200
        answer = await gateway.get("/v1/imports")
    assert answer.status == 404
    assert "READIE_RECORD_IMPORTS_DAYS" in answer.json()["detail"]


async def test_a_gateway_that_stops_writes_what_it_has_noted(
    valkey: RedisServer, tmp_path: Path
) -> None:
    async with (
        running_gateway(valkey.socket_url, tmp_path, record_imports_days=DAYS) as gateway,
        played_worker(gateway, answer_1),
    ):
        assert (await gateway.invoke({"source": "import numpy"})).status == 200
    async with running_gateway(valkey.socket_url, tmp_path, record_imports_days=DAYS) as gateway:
        assert [line["count"] for line in await recorded(gateway)] == [1]


async def test_what_could_not_be_written_is_kept_up_to_a_bound() -> None:
    store = CallStore(connect("unix:///nowhere/valkey.sock"))
    ledger = ImportLedger(store, DAYS)
    for number in range(MAX_UNWRITTEN + 10):
        ledger.note(header(f"module_{number}"))
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            await ledger.write()
    assert len(ledger) == MAX_UNWRITTEN
    await store.close()


@pytest.mark.parametrize(
    ("imports", "kept"),
    [
        ((), "[]"),
        (("numpy", "numpy", "json", "os.path", "__main__"), '["numpy"]'),
        (("b", "a.c", "a"), '["a","a.c","b"]'),
        (("not a name", "a..b", "x" * 5, "é", "a\x00b", 'q"'), '["xxxxx"]'),
        (tuple(f"module_{number:04}" for number in range(MAX_SET_BYTES // 10)), ""),
    ],
)
def test_a_set_is_canonical_and_holds_only_what_can_be_a_public_module(
    imports: tuple[str, ...], kept: str
) -> None:
    assert import_set(imports, ()) == kept


def test_recording_is_on_unless_it_is_switched_off(tmp_path: Path) -> None:
    settings = GatewaySettings(redis_url="redis://x", token_file=tmp_path / "tokens")
    assert settings.record_imports_days == 14
