"""Where a call goes and what it starts from, over HTTP: workers, catalogues, pins, prices."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from readie_wire.catalogue import Catalogue, CatalogueCheckpoint, Item, dump_catalogue
from readie_wire.framing import FrameType, encode_message
from readie_wire.http import MEDIA_CALL
from readie_wire.records import CallRecord
from support.gateway import Gateway, PlayedWorker, fork_generation, played_worker, running_gateway
from support.http_client import Answer
from support.redis_servers import RedisServer

GENERATION = "20260101T000000-0123abcd"
GIB = 1 << 30

CATALOGUE = Catalogue(
    flavor="cpu",
    alpha=0.002,
    distributions={"numpy": "2.0.2", "pandas": "2.2.3"},
    items={
        "numpy": Item(0.2, 20.0, distribution="numpy"),
        "pandas": Item(0.8, 60.0, dependencies=("numpy",), distribution="pandas"),
        "torch": Item(3.0, 300.0, distribution="torch"),
    },
    checkpoints=(
        CatalogueCheckpoint("checkpoint_1", ("numpy",), ("numpy",), 20.0),
        CatalogueCheckpoint("checkpoint_2", ("numpy", "pandas"), ("pandas",), 80.0),
    ),
)
DATA = dump_catalogue(CATALOGUE)
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "catalogues"
    found.mkdir()
    (found / "cpu.json").write_bytes(DATA)
    return found


@pytest.fixture
async def gateway(valkey: RedisServer, tmp_path: Path, folder: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(valkey.socket_url, tmp_path, catalogues=folder) as running:
        yield running


async def answer_1(worker: PlayedWorker, call: CallRecord) -> None:
    await worker.succeed(call, b"1")


def worker_of(gateway: Gateway, **record: Any) -> Any:
    given = {
        "generations": fork_generation(
            SHA256,
            *("checkpoint_1", "checkpoint_2"),
            import_environment={"checkpoint_2": ["MPLBACKEND"]},
            startup_cold_s=0.4,
            startup_restore_s=0.25,
        ),
        **record,
    }
    return played_worker(gateway, answer_1, **given)


async def choice(gateway: Gateway, source: str, **options: object) -> dict[str, Any]:
    """Run a call and give the choice that was made for it."""
    answer = await gateway.invoke({"source": source, "options": options})
    assert answer.status == 200, answer.body
    call = (await gateway.get(f"/v1/calls/{answer.json()['call_id']}")).json()
    chosen: dict[str, Any] = call["choice"]
    return chosen


async def refused(gateway: Gateway, **options: object) -> tuple[int, dict[str, Any]]:
    answer = await gateway.invoke({"source": "x = 1", "options": options})
    return answer.status, answer.json()


async def test_the_cheapest_checkpoint_is_chosen_and_priced(gateway: Gateway) -> None:
    async with worker_of(gateway) as worker:
        chosen = await choice(gateway, "import pandas, os, unheard_of")
    assert chosen["generation"] == GENERATION
    assert chosen["checkpoint"] == "checkpoint_2"
    assert chosen["predicted_s"] == pytest.approx(80 * 0.002)
    assert chosen["cold_s"] == pytest.approx(1.0)
    assert chosen["predicted_start_s"] == pytest.approx(0.25)
    assert chosen["cold_start_s"] == pytest.approx(0.4 + 1.0)
    (call,) = worker.taken
    assert call.needs == ("pandas",)
    assert call.choice.key == f"{GENERATION}/checkpoint_2"


async def test_a_cold_start_that_is_cheapest_is_chosen_with_its_reason(gateway: Gateway) -> None:
    async with worker_of(gateway):
        chosen = await choice(gateway, "x = 1")
    assert chosen["checkpoint"] is None
    assert "cheaper" in chosen["reason"]


async def test_eligible_comes_before_cheap(gateway: Gateway) -> None:
    async with worker_of(gateway):
        by_environment = await choice(gateway, "import pandas", env={"MPLBACKEND": "svg"})
        by_memory = await choice(gateway, "import pandas", memory="96Mi")
    assert by_environment["checkpoint"] == "checkpoint_1"
    assert "MPLBACKEND" in by_environment["reason"]
    assert by_memory["checkpoint"] == "checkpoint_1"


async def test_a_call_can_be_pinned_and_can_opt_out(gateway: Gateway) -> None:
    async with worker_of(gateway):
        for pin in ("checkpoint_1", f"{GENERATION}/checkpoint_1"):
            chosen = await choice(gateway, "import pandas", checkpoint_id=pin)
            assert (chosen["checkpoint"], chosen["pinned"]) == ("checkpoint_1", True)
        cold = await choice(gateway, "import pandas", disable_optimized_execution=True)
    assert cold["checkpoint"] is None
    assert "disabled" in cold["reason"]


async def test_a_checkpoint_that_holds_what_the_caller_brings_as_its_own_is_not_used(
    gateway: Gateway,
) -> None:
    body = {"imports": ["pandas"], "modules": ["pandas"]}
    async with worker_of(gateway) as worker:
        explained = await explain(gateway, **body)
        assert (await pickled(gateway, "3.11.7", **body)).status == 200
        pinned = {**body, "options": {"checkpoint_id": "checkpoint_2"}}
        refused = await pickled(gateway, "3.11.7", **pinned)
    (call,) = worker.taken
    assert call.modules == ("pandas",)
    assert call.choice.checkpoint == "checkpoint_1"
    assert "brings its own pandas" in call.choice.reason
    assert explained["choice"]["checkpoint"] == "checkpoint_1"
    assert "brings its own pandas" in explained["quotes"][2]["refused"]
    assert (refused.status, refused.json()["field"]) == (422, "options.checkpoint_id")


@pytest.mark.parametrize("pin", ["checkpoint_9", "20250101T000000-ffffffff/checkpoint_1"])
async def test_a_pin_that_no_worker_holds_is_refused_with_those_there_are(
    gateway: Gateway, pin: str
) -> None:
    async with worker_of(gateway):
        status, body = await refused(gateway, checkpoint_id=pin)
    assert (status, body["code"]) == (422, "unknown_checkpoint")
    assert body["field"] == "options.checkpoint_id"
    assert body["limit"] == [f"{GENERATION}/checkpoint_1", f"{GENERATION}/checkpoint_2"]


async def test_a_pin_that_cannot_serve_the_call_is_refused_with_the_reason(
    gateway: Gateway,
) -> None:
    async with worker_of(gateway):
        status, body = await refused(gateway, checkpoint_id="checkpoint_2", env={"MPLBACKEND": "a"})
    assert (status, body["field"]) == (422, "options.checkpoint_id")
    assert "MPLBACKEND" in body["detail"]


async def test_a_catalogue_that_no_live_worker_holds_is_not_priced(gateway: Gateway) -> None:
    other = fork_generation("0" * 64, "checkpoint_1")
    async with worker_of(gateway, generations=other):
        chosen = await choice(gateway, "import pandas")
        listed = (await gateway.get("/v1/catalogues")).json()["catalogues"]
    assert chosen["checkpoint"] is None
    assert [(one["flavor"], one["live"]) for one in listed] == [("cpu", False)]


async def test_a_catalogue_is_read_again_when_it_changes_and_skipped_when_it_is_bad(
    gateway: Gateway, folder: Path
) -> None:
    (folder / "old.json").write_text(json.dumps({"version": 1}))
    (folder / "broken.json").write_text("{")
    skipped = await until(gateway, lambda found: len(found["skipped"]) == 2)
    reasons = {Path(one["path"]).name: one["reason"] for one in skipped["skipped"]}
    assert "version is 1" in reasons["old.json"]
    assert "not JSON" in reasons["broken.json"]
    assert len(skipped["catalogues"]) == 1
    ready = await gateway.get("/readyz")
    assert ready.status == 200
    assert any("old.json" in warning for warning in ready.json()["warnings"])
    (folder / "old.json").unlink()
    (folder / "broken.json").write_bytes(dump_catalogue(Catalogue("gpu", 0.01, {}, ())))
    mended = await until(gateway, lambda found: not found["skipped"])
    assert [one["flavor"] for one in mended["catalogues"]] == ["gpu", "cpu"]


async def until(gateway: Gateway, holds: Any) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while not holds(found := (await gateway.get("/v1/catalogues")).json()):
            await asyncio.sleep(0.05)
    result: dict[str, Any] = found
    return result


async def test_a_pickle_of_another_python_is_refused_before_it_is_queued(
    gateway: Gateway,
) -> None:
    async with worker_of(gateway) as worker:
        answer = await pickled(gateway, "3.12.1")
        body = answer.json()
        assert (answer.status, body["code"]) == (422, "incompatible_python")
        assert "3.12" in body["detail"]
        assert "3.11" in body["detail"]
        assert body["limit"] == ["3.11"]
        assert not worker.taken
        assert (await pickled(gateway, "3.11.2")).status == 200


async def pickled(gateway: Gateway, python: str, **more: object) -> Answer:
    header = {"v": 1, "kind": "pickle", "function": "f", "python": python, **more}
    return await gateway.request(
        "POST",
        "/v1/invoke",
        headers={"Content-Type": MEDIA_CALL},
        body=b"".join(encode_message(FrameType.CALL, header, b"x")),
    )


@pytest.mark.parametrize(
    ("record", "options", "field", "says"),
    [
        (
            {"memory_total": GIB},
            {"memory": "2Gi"},
            "options.memory",
            "largest cpu worker has 1 GiB",
        ),
        ({"error": "there is no root filesystem"}, {}, None, "there is no root filesystem"),
        (
            {"flavor": "gpu", "gpu_total": GIB},
            {"gpu_memory": "2Gi"},
            "options.gpu_memory",
            "offers 1 GiB",
        ),
    ],
)
async def test_a_call_that_fits_no_worker_there_is_is_refused_at_once(
    gateway: Gateway, record: Any, options: Any, field: str | None, says: str
) -> None:
    async with worker_of(gateway, **record):
        status, body = await refused(gateway, **options)
    assert (status, body["code"], body["field"]) == (503, "no_worker", field)
    assert says in body["detail"]


async def test_a_cpu_call_goes_to_a_gpu_worker_only_where_there_is_no_other(
    gateway: Gateway,
) -> None:
    async with worker_of(gateway, flavor="gpu") as only_gpu:
        await choice(gateway, "x = 1")
        assert [call.flavor for call in only_gpu.taken] == ["gpu"]
        async with worker_of(gateway) as cpu:
            await choice(gateway, "x = 1")
            assert [call.flavor for call in cpu.taken] == ["cpu"]


async def explain(gateway: Gateway, **body: object) -> dict[str, Any]:
    answer = await gateway.request(
        "POST",
        "/v1/explain",
        headers={"Content-Type": "application/json"},
        body=json.dumps(body).encode(),
    )
    assert answer.status == 200, answer.body
    explained: dict[str, Any] = answer.json()
    return explained


async def test_explain_gives_the_price_of_every_start(gateway: Gateway) -> None:
    async with worker_of(gateway):
        explained = await explain(
            gateway,
            imports=["pandas.io"],
            source="import unheard_of",
            options={"memory": "96Mi"},
        )
    assert explained["choice"]["checkpoint"] == "checkpoint_1"
    assert explained["matched"] == {"pandas.io": "pandas"}
    assert explained["unknown"] == ["unheard_of"]
    items = {item["name"]: item for item in explained["items"]}
    assert set(items) == {"numpy", "pandas"}
    assert (items["pandas"]["distribution"], items["pandas"]["version"]) == ("pandas", "2.2.3")
    assert explained["seen"] == [
        {"name": "unheard_of", "how": "import", "function": "", "line": 1, "file": ""}
    ]
    cold, first, second = explained["quotes"]
    assert (cold["checkpoint"], cold["total_s"]) == (None, pytest.approx(1.0))
    assert (first["missing"], first["total_s"]) == (["pandas"], pytest.approx(0.84))
    assert "96 MiB" in second["refused"]


@pytest.mark.parametrize(("runtime", "size_s"), [("gvisor", 0.04), ("fork", 0.005)])
async def test_a_start_is_predicted_with_what_any_costs_and_what_its_size_was_measured_to(
    gateway: Gateway, runtime: str, size_s: float
) -> None:
    startup = {"startup_cold_s": 0.4, "startup_restore_s": 0.25, "startup_per_mb_s": 0.00025}
    held = fork_generation(SHA256, "checkpoint_1", runtime=runtime, **startup)
    async with worker_of(gateway, generations=held):
        explained = await explain(gateway, imports=["pandas"])
    assert explained["startup"] == {
        "cold": 0.4,
        "restore": 0.25,
        "import_factor": 1.0,
        "per_mb": 0.00025,
    }
    cold, first, _ = explained["quotes"]
    terms = ("fixed_s", "size_s", "imports_s", "start_s")
    assert [cold[term] for term in terms] == pytest.approx([0.4, 0.0, 1.0, 1.4])
    assert [first[term] for term in terms] == pytest.approx([0.25, size_s, 0.8, 1.05 + size_s])
    assert explained["choice"]["predicted_start_s"] == first["start_s"]


async def test_what_no_worker_holds_is_explained_with_its_size_and_not_chosen(
    gateway: Gateway,
) -> None:
    async with worker_of(gateway, generations=fork_generation(SHA256, "checkpoint_1")):
        explained = await explain(gateway, imports=["pandas"])
    quotes = {quote["checkpoint"]: quote for quote in explained["quotes"]}
    assert quotes["checkpoint_2"]["refused"] == "no worker holds it"
    assert quotes["checkpoint_2"]["size_mb"] > quotes["checkpoint_1"]["size_mb"] > 0
    assert explained["choice"]["checkpoint"] == "checkpoint_1"


@pytest.mark.parametrize(
    ("source", "note"),
    [
        ("import pandas\ndef (", "its imports may be missing: line 2: invalid syntax"),
        ("import pandas\x00", "its imports may be missing: "),
        ("import pandas\n__import__(name)", "imports of computed names are not priced: 1"),
        ("\n".join(f"import m{n}" for n in range(2_001)), "too large to be read whole"),
        ("import pandas", None),
    ],
)
async def test_what_imports_do_not_tell_is_noted(
    gateway: Gateway, source: str, note: str | None
) -> None:
    notes = (await explain(gateway, source=source))["notes"]
    assert len(notes) == (note is not None)
    assert all(note is not None and note in one for one in notes)


async def test_the_fleet_and_its_catalogue_can_be_looked_at(gateway: Gateway) -> None:
    async with worker_of(gateway) as worker:
        (seen,) = (await gateway.get("/v1/workers")).json()["workers"]
        assert seen["boot"] == worker.record.boot
        (generation,) = (await gateway.get("/v1/generations")).json()["generations"]
        assert (generation["generation"], generation["current"]) == (GENERATION, True)
        catalogue = (await gateway.get("/v1/catalogues/cpu")).json()
    assert (catalogue["generation"], catalogue["live"]) == (GENERATION, True)
    assert [one["id"] for one in catalogue["checkpoints"]] == ["checkpoint_1", "checkpoint_2"]


async def test_a_cpu_call_too_large_for_cpu_workers_may_wait_for_a_gpu_worker(
    gateway: Gateway,
) -> None:
    async with (
        worker_of(gateway, memory_total=2 * GIB, memory_free=2 * GIB),
        worker_of(gateway, flavor="gpu", memory_total=8 * GIB, generations=()),
    ):
        large = {"memory": 4 * GIB}
        taken = await gateway.invoke(
            {"source": "result = 1", "options": large}, Prefer="respond-async"
        )
        assert taken.status == 202
        named = await gateway.invoke(
            {"source": "result = 1", "options": {**large, "flavor": "cpu"}}
        )
        assert (named.status, named.json()["limit"]) == (503, 2 * GIB)
