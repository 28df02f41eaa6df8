"""A worker follows a bucket of a real S3 server, is nudged by way of Redis, and tells what it has."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from readie_infra.bucket import Bucket, Trust
from readie_infra.objects import ObjectStore, open_objects
from readie_pipeline.publish.publishing import publish, roll_back
from readie_wire.holdings import GenerationState, HeldCheckpoint, RefusalKind, SyncState, Tier
from readie_wire.keys import new_session_id
from readie_wire.manifest import Manifest
from readie_wire.publication import ANY_ROOTFS
from readie_wire.records import SessionRecord
from readie_worker.sandbox.fork import ForkRuntime
from readie_worker.sandbox.guarded import GuardedRuntime
from readie_worker.service import Worker
from readie_worker.syncing import Following
from support.calling import Caller, until
from support.executor_driver import pickled_call
from support.generations import EMPTY
from support.published import quietly, stock_of, write_captured
from support.s3_servers import S3Server

NEVER = 3_600.0  # a pause between two looks that no test waits for
CHECKPOINTS = {EMPTY: [], "checkpoint_1": ["json"], "checkpoint_2": ["no_such_module"]}


@pytest.fixture
def store(s3: S3Server) -> ObjectStore:
    return open_objects(s3.make_bucket())


@pytest.fixture
async def worker(
    start_worker: Any, store: ObjectStore, short_path: Path, tmp_path: Path
) -> AsyncIterator[Worker]:
    """It looks at the bucket when it starts, and then only when it is nudged."""
    put(store, tmp_path, 1)
    runtime = GuardedRuntime(ForkRuntime(short_path, environment=dict(os.environ)))
    await runtime.open()
    following = Following(Bucket(store, Trust(unsigned=True)), tmp_path / "disk", ANY_ROOTFS, NEVER)
    async with start_worker(runtime, spares=0, following=following) as running:
        await until(lambda: is_complete(running))
        yield running


def put(store: ObjectStore, folder: Path, number: int) -> Manifest:
    captured = folder / f"captured-{number}"
    made = write_captured(captured, CHECKPOINTS, created=f"2026010{number}T000000")
    publish(store, stock_of(captured), None, quietly)
    return made


def held(worker: Worker) -> dict[str, HeldCheckpoint]:
    """The checkpoints of the generation that is served."""
    for one in worker.describe().holding.generations:
        if one.state is GenerationState.SERVED:
            return dict(one.checkpoints)
    return {}


def is_complete(worker: Worker) -> bool:
    """Everything has arrived, and was adopted or refused."""
    told = held(worker).values()
    return bool(told) and all(one.ready or refused_by_runtime(one) for one in told)


def refused_by_runtime(one: HeldCheckpoint) -> bool:
    return one.refusal is not None and one.refusal.kind is RefusalKind.MACHINE


def served(worker: Worker) -> str:
    facts = worker.describe().generations
    return facts[0].generation if facts else ""


def synced(worker: Worker) -> SyncState:
    told = worker.describe().holding.sync
    assert told is not None
    return told


async def test_what_is_published_and_rolled_back_is_served_at_once_when_it_is_announced(
    worker: Worker, caller: Caller, store: ObjectStore, tmp_path: Path
) -> None:
    first = served(worker)
    made = put(store, tmp_path, 2)
    await caller.store.announce()
    await until(lambda: served(worker) == made.generation)
    roll_back(store, "cpu", ANY_ROOTFS)
    await caller.store.announce()
    await until(lambda: served(worker) == first)
    assert worker.describe().holding.swaps == 2
    await until(lambda: synced(worker).syncs == 3)
    assert synced(worker).leads
    assert synced(worker).fetched_bytes > 4 * 150_000  # two generations of three images, not three


async def test_a_worker_tells_which_tier_each_checkpoint_is_in_and_why_it_refuses_one(
    worker: Worker, caller: Caller, store: ObjectStore, tmp_path: Path
) -> None:
    await until(
        lambda: all(held(worker)[name].cached is not None for name in (EMPTY, "checkpoint_1"))
    )
    told = held(worker)
    for name in (EMPTY, "checkpoint_1"):
        assert told[name].ready
        assert told[name].tier is Tier.MEMORY  # it has just been written and read
        assert told[name].size > 150_000
    refusal = told["checkpoint_2"].refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.MACHINE
    assert "no_such_module" in refusal.reason
    assert not told["checkpoint_2"].ready
    before = served(worker)
    made = put(store, tmp_path, 2)
    await caller.store.announce()
    await until(lambda: served(worker) == made.generation)
    (record,) = [one for one in worker.describe().holding.generations if one.generation == before]
    assert record.state is GenerationState.KEPT
    assert Tier.REMOTE not in {one.tier for one in record.checkpoints.values()}


async def test_a_session_keeps_its_sandbox_through_a_swap(
    worker: Worker, caller: Caller, store: ObjectStore, tmp_path: Path
) -> None:
    session = SessionRecord(new_session_id(), "default", "cpu")
    assert await caller.store.open_session(session)

    async def pid() -> int:
        record = caller.record(os.getpid)
        record = replace(record, session=session.session_id, payload=pickled_call(os.getpid))
        ended = await caller.end_of(await caller.enqueue(record))
        assert isinstance(ended.value, int)
        return ended.value

    before = await pid()
    made = put(store, tmp_path, 2)
    await caller.store.announce()
    await until(lambda: served(worker) == made.generation)
    assert await pid() == before
