"""What an operator is told of generations: published, held, refused, and a nudge to look."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from readie_gateway.bucket_view import BucketView
from readie_infra.nudges import Nudges
from readie_infra.objects import ObjectStore, open_objects
from readie_pipeline.publish.publishing import publish
from readie_wire.holdings import (
    GenerationState,
    HeldCheckpoint,
    HeldGeneration,
    Holding,
    Refusal,
    RefusalKind,
    SyncState,
    Tier,
)
from readie_wire.manifest import Manifest
from readie_wire.publication import manifest_key, pointer_key
from readie_wire.records import GenerationFacts
from support.gateway import DEFAULT_RECORD, LONG_S, Gateway, running_gateway
from support.generations import EMPTY
from support.published import quietly, stock_of, write_captured
from support.redis_servers import RedisServer

NEVER = 3_600.0
REFUSAL = Refusal(RefusalKind.MACHINE, "captured for gVisor 1, this worker runs 2")

Put = Callable[..., Manifest]


@pytest.fixture
def bucket(tmp_path: Path) -> ObjectStore:
    return open_objects((tmp_path / "bucket").as_uri())


@pytest.fixture
def put(bucket: ObjectStore, tmp_path: Path) -> Put:
    def put(number: int, **checkpoints: list[str]) -> Manifest:
        folder = tmp_path / f"captured-{number}"
        made = write_captured(
            folder,
            {EMPTY: [], "checkpoint_1": ["json"], **checkpoints},
            created=f"2026010{number}T000000",
        )
        publish(bucket, stock_of(folder), None, quietly)
        return made

    return put


@pytest.fixture
async def gateway(
    valkey: RedisServer, bucket: ObjectStore, put: Put, tmp_path: Path
) -> AsyncIterator[Gateway]:
    """On a bucket with one generation, which it has looked at."""
    put(1)
    async with running_gateway(valkey.socket_url, tmp_path, bucket=bucket) as running:
        await view(running).refresh()
        yield running


def view(gateway: Gateway) -> Any:
    return gateway.services.bucket


async def hold(gateway: Gateway, made: Manifest, arriving: str = "") -> None:
    """A worker that restores the empty checkpoint and refuses the other one."""
    facts = GenerationFacts(
        made.generation, made.catalogue_sha256, (EMPTY,), made.python, made.runtime
    )
    held = HeldGeneration(
        made.generation,
        GenerationState.SERVED,
        {
            EMPTY: HeldCheckpoint(100, Tier.MEMORY, ready=True, cached=100),
            "checkpoint_1": HeldCheckpoint(50, Tier.DISK, cached=0, refusal=REFUSAL),
        },
    )
    sync = SyncState(
        leads=True,
        arriving=arriving,
        arriving_bytes=900 if arriving else 0,
        arrived_bytes=300 if arriving else 0,
        fetched_bytes=150,
        seconds=1.5,
        syncs=1,
        failures=2,
    )
    record = replace(
        DEFAULT_RECORD,
        boot="worker-1",
        generations=(facts,),
        holding=Holding((held,), sync, swaps=3),
    )
    await gateway.services.store.beat(record, LONG_S)
    for _ in range(2):  # it is seen, then its catalogue is fetched
        await gateway.services.fleet.refresh()
        await gateway.services.catalogues.refresh()
    await gateway.services.fleet.refresh()


async def test_what_is_published_is_listed_with_who_serves_it(gateway: Gateway, put: Put) -> None:
    second = put(2)
    await view(gateway).refresh()
    told = (await gateway.get("/v1/generations")).json()
    assert told["bucket"]["error"] == ""
    (pointer,) = told["published"]
    assert (pointer["flavor"], pointer["rootfs"]) == ("cpu", "any")
    assert pointer["current"] == second.generation
    newest, first = told["generations"]
    assert (newest["role"], newest["workers"]) == ("current", [])
    assert (first["role"], first["generation"]) == ("previous", pointer["previous"])
    assert newest["checkpoints"] == [EMPTY, "checkpoint_1"]
    assert newest["size"] > 300_000
    await hold(gateway, second)
    newest = (await gateway.get("/v1/generations")).json()["generations"][0]
    assert newest["workers"] == ["worker-1"]
    assert newest["priced"]
    assert newest["current"]


async def test_the_catalogue_that_comes_next_is_read_before_a_worker_holds_it(
    gateway: Gateway, put: Put
) -> None:
    first = put(2)
    await hold(gateway, first)
    second = put(3, checkpoint_2=["decimal"])
    assert second.catalogue_sha256 != first.catalogue_sha256
    await view(gateway).refresh()
    await gateway.services.fleet.refresh()
    await gateway.services.catalogues.refresh()
    loaded = {one.sha256 for one in gateway.services.catalogues.loaded}
    assert loaded == {first.catalogue_sha256, second.catalogue_sha256}
    priced = gateway.services.fleet.now.priced("cpu")
    assert [one.generation for one in priced] == [first.generation]


class Late:
    """A store whose first answer comes when it is let go, and is what was there when it was asked."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.asked, self.let_go = threading.Event(), threading.Event()

    def get(self, key: str) -> Any:
        found = self._store.get(key)
        if not self.asked.is_set():
            self.asked.set()
            self.let_go.wait(60)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def test_a_look_that_took_long_is_not_told_after_a_later_one(
    bucket: ObjectStore, put: Put
) -> None:
    put(1)
    late = Late(bucket)
    seen = BucketView(cast(ObjectStore, late))
    first = asyncio.create_task(seen.refresh())
    assert await asyncio.to_thread(late.asked.wait, 60)
    newest = put(2)
    second = asyncio.create_task(seen.refresh())
    await asyncio.wait({second}, timeout=0.1)  # as far as it comes beside the first
    late.let_go.set()
    await asyncio.gather(first, second)
    assert [one.target.generation for one in seen.pointers] == [newest.generation]


class Hanging:
    """A store that answers nothing."""

    url = "s3://hanging"

    def list(self, prefix: str) -> Any:
        threading.Event().wait()


def test_a_bucket_that_does_not_answer_holds_up_nobody_who_ends() -> None:
    async def look() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await BucketView(cast(ObjectStore, Hanging())).refresh()

    asyncio.run(look())


async def test_how_far_a_generation_has_come_is_told(gateway: Gateway, put: Put) -> None:
    first, second = put(2), put(3)
    await view(gateway).refresh()
    await hold(gateway, first, arriving=second.generation)
    newest, serving = (await gateway.get("/v1/generations")).json()["generations"]
    assert newest["arriving"] == [{"worker": "worker-1", "bytes": 300, "of": 900}]
    assert serving["arriving"] == []
    metrics = (await gateway.get("/metrics")).body.decode()
    assert 'readie_sync_remaining_bytes{worker="worker-1"} 600.0' in metrics


async def test_one_generation_tells_its_checkpoints_and_why_a_worker_refuses_one(
    gateway: Gateway, put: Put
) -> None:
    made = put(2)
    await hold(gateway, made)
    told = (await gateway.get(f"/v1/generations/{made.generation}")).json()
    assert [one["imports"] for one in told["checkpoints"]] == [[], ["json"]]
    assert all(one["size"] > 150_000 and one["digest"] for one in told["checkpoints"])
    (worker,) = told["holding"]
    assert (worker["boot"], worker["state"]) == ("worker-1", "served")
    assert worker["checkpoints"][EMPTY]["tier"] == "memory"
    assert worker["checkpoints"]["checkpoint_1"]["refusal"] == {
        "kind": "machine",
        "reason": REFUSAL.reason,
    }
    assert {"manifest.json", "catalogue.json"} < {file["name"] for file in told["files"]}


async def test_a_generation_nobody_serves_is_told_from_the_bucket_and_an_unknown_one_is_404(
    gateway: Gateway, put: Put
) -> None:
    made = [put(number) for number in (2, 3, 4)]
    told = (await gateway.get(f"/v1/generations/{made[0].generation}")).json()
    assert (told["role"], told["holding"]) == (None, [])
    assert told["distributions"] == {}
    answer = await gateway.get("/v1/generations/20990101T000000-00000000")
    assert answer.status == 404
    assert "neither" not in answer.json()["detail"]
    assert "served by no live worker and not in file://" in answer.json()["detail"]


async def test_a_bucket_that_is_away_is_said_and_what_workers_hold_is_told(
    gateway: Gateway, put: Put, tmp_path: Path
) -> None:
    made = put(2)
    await hold(gateway, made)
    for pointer in (tmp_path / "bucket" / "flavors").rglob("current.json"):
        pointer.write_text("{")
    await view(gateway).refresh()
    told = (await gateway.get("/v1/generations")).json()
    assert "is refused" in told["bucket"]["error"]
    assert made.generation in {one["generation"] for one in told["generations"]}
    metrics = (await gateway.get("/metrics")).body.decode()
    assert "readie_bucket_up 0.0" in metrics


async def test_one_generation_that_cannot_be_read_hides_no_other(
    gateway: Gateway, put: Put, tmp_path: Path
) -> None:
    broken, made = put(2), put(3)
    listed = tmp_path / "bucket" / manifest_key("cpu", broken.generation)
    listed.write_text("{")
    other = tmp_path / "bucket" / pointer_key("gpu", "any")
    other.parent.mkdir(parents=True)
    other.write_text("{")
    await view(gateway).refresh()
    told = (await gateway.get("/v1/generations")).json()
    assert broken.generation in told["bucket"]["error"]
    assert [one["generation"] for one in told["generations"]] == [made.generation]
    answer = (await gateway.get(f"/v1/generations/{broken.generation}")).json()
    assert f"generation {broken.generation} is refused" in answer["detail"]


async def test_a_refresh_nudges_everybody_who_follows(gateway: Gateway, put: Put) -> None:
    await hold(gateway, put(2))
    listener = Nudges(gateway.services.store, "worker-1")
    await listener.pause(0.01)
    answer = await gateway.request("POST", "/v1/generations/refresh")
    assert (answer.status, answer.json()) == (202, {"announced": True, "workers": 1})
    await listener.pause(NEVER)
    refused = await gateway.request(
        "POST", "/v1/generations/refresh", headers={"Authorization": "Bearer no"}
    )
    assert refused.status == 401


async def test_metrics_tell_syncs_tiers_refusals_and_swaps(gateway: Gateway, put: Put) -> None:
    first = put(2)
    await hold(gateway, first)
    second = put(3)
    await view(gateway).refresh()
    await hold(gateway, second)
    lines = set((await gateway.get("/metrics")).body.decode().splitlines())
    held = f'generation="{second.generation}"'
    assert {
        'readie_sync_bytes_total{worker="worker-1"} 150.0',
        'readie_sync_seconds_sum{worker="worker-1"} 1.5',
        'readie_sync_failures_total{worker="worker-1"} 2.0',
        'readie_swaps_total{worker="worker-1"} 3.0',
        'readie_gateway_swaps_total{flavor="cpu"} 1.0',
        f'readie_checkpoints{{{held},tier="memory",worker="worker-1"}} 1.0',
        f'readie_checkpoints_refused{{{held},reason="machine",worker="worker-1"}} 1.0',
        f'readie_generation_info{{flavor="cpu",{held},state="served",worker="worker-1"}} 1.0',
        f'readie_published_info{{flavor="cpu",{held},role="current",rootfs="any"}} 1.0',
    } <= lines
