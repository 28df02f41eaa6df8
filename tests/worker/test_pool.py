"""Which checkpoints have sandboxes ready, and what the worker holds; with fake sandboxes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from platform import python_version
from typing import Any

import pytest

from readie_worker.background import Background
from readie_worker.generations import Machine
from readie_worker.holdings import Holdings
from readie_worker.pool import IDLE_MEMORY, Pool
from readie_worker.sandbox.fake import FakeRuntime
from readie_worker.starting import Starter
from support.calling import SURELY
from support.generations import EMPTY, write_generation

CHECKPOINTS = {EMPTY: [], "checkpoint_1": ["json"], "checkpoint_2": ["decimal"]}


class Rig:
    """A pool on a fake runtime, with the parts it needs."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.folder = folder
        self.generation = write_generation(folder, CHECKPOINTS).generation
        self.fake = FakeRuntime()
        self.background = Background()
        self.holdings = Holdings(
            self.fake,
            Machine("cpu", "fork", python_version()),
            folder,
            resident=lambda _: 1,
            resident_budget=limits.pop("resident_budget", 10),
        )
        self.starter = Starter(
            self.fake,
            self.background,
            boot="worker-0123456789",
            network="host",
            start_timeout=SURELY,
            result_limit=1000,
        )
        settings = {
            "per_checkpoint": 2,
            "most": 100,
            "cost": lambda _: 1,
            "budget": 100,
            "together": 2,
        }
        self.pool = Pool(self.starter, self.holdings, self.background, **{**settings, **limits})
        self.holdings.on_change = self.pool.follow_holdings

    async def open(self) -> "Rig":
        await self.fake.open()
        await self.holdings.refresh()
        await self.settle()
        return self

    async def settle(self) -> None:
        """Until nothing is made or destroyed any more."""
        async with asyncio.timeout(SURELY):
            while len(self.background):
                await asyncio.sleep(0.001)

    def key(self, checkpoint: str) -> str:
        return f"{self.generation}/{checkpoint}"

    @property
    def counts(self) -> dict[str, int]:
        return {key.rpartition("/")[2]: count for key, count in self.pool.counts.items()}


MakeRig = Callable[..., Any]


@pytest.fixture
async def make_rig(tmp_path: Path) -> AsyncIterator[MakeRig]:
    rigs: list[Rig] = []

    async def make(**limits: Any) -> Rig:
        rigs.append(Rig(tmp_path, **limits))
        return await rigs[-1].open()

    yield make
    for rig in rigs:
        rig.pool.close()
        await rig.background.close(SURELY)
        await rig.fake.close()


async def test_each_checkpoint_has_its_sandboxes_ready(make_rig: MakeRig) -> None:
    rig = await make_rig()
    assert rig.counts == {EMPTY: 2, "checkpoint_1": 2, "checkpoint_2": 2}
    assert set(rig.pool.ready_keys) == {rig.key(name) for name in CHECKPOINTS}


async def test_a_claimed_sandbox_is_replaced_when_nobody_waits(make_rig: MakeRig) -> None:
    rig = await make_rig()
    live = rig.pool.claim(rig.key(EMPTY))
    assert live is not None
    assert rig.counts[EMPTY] == 1
    rig.pool.refill()
    await rig.settle()
    assert rig.counts[EMPTY] == 2
    rig.starter.discard(live)


async def test_a_start_that_a_call_waits_for_goes_before_those_made_ahead(
    make_rig: MakeRig,
) -> None:
    rig = await make_rig(together=1)
    live = rig.pool.claim(rig.key(EMPTY))
    assert live is not None
    with rig.pool.awaited():
        rig.pool.refill()
        assert len(rig.background) == 0
    await rig.settle()
    assert rig.counts[EMPTY] == 2
    rig.starter.discard(live)


async def test_with_room_for_few_the_first_of_the_catalogue_come_first(make_rig: MakeRig) -> None:
    rig = await make_rig(most=3)
    assert rig.counts == {EMPTY: 2, "checkpoint_1": 1}


async def test_the_memory_budget_bounds_what_is_ready(make_rig: MakeRig) -> None:
    rig = await make_rig(cost=lambda _: 40)
    assert rig.counts == {EMPTY: 2}


async def test_demand_moves_the_sandboxes_to_where_they_are_wanted(make_rig: MakeRig) -> None:
    rig = await make_rig(most=2)
    assert rig.counts == {EMPTY: 2}
    assert rig.pool.claim(rig.key("checkpoint_2")) is None
    rig.pool.refill()
    await rig.settle()
    assert rig.counts == {"checkpoint_2": 2}


async def test_standing_in_for_another_is_no_demand(make_rig: MakeRig) -> None:
    rig = await make_rig(most=2)
    assert rig.pool.claim(rig.key("checkpoint_2")) is None
    live = rig.pool.claim(rig.key(EMPTY), wanted=False)
    assert live is not None
    rig.starter.discard(live)
    rig.pool.refill()
    await rig.settle()
    assert rig.counts == {"checkpoint_2": 2}


async def test_a_sandbox_without_a_call_may_use_what_its_checkpoint_holds_and_more(
    make_rig: MakeRig,
) -> None:
    """A checkpoint of more than the usual limit would never come up, and end in quarantine."""
    held = 5 << 30
    rig = await make_rig(cost=lambda _: held, budget=10 * held)
    assert {sandbox.limits.memory for sandbox in rig.fake.sandboxes} == {held + IDLE_MEMORY}


async def test_the_sandboxes_of_a_generation_that_went_go_with_it(make_rig: MakeRig) -> None:
    rig = await make_rig()
    old = rig.generation
    fresh = write_generation(rig.folder, {EMPTY: []}, created="20270101T000000")
    await rig.holdings.refresh()
    await rig.settle()
    assert set(rig.pool.counts) == {f"{fresh.generation}/{EMPTY}"}
    assert all(not key.startswith(old) for key in rig.fake.adopted)
    assert sum(not sandbox.destroyed for sandbox in rig.fake.sandboxes) == 2


async def test_a_closed_pool_makes_no_more(make_rig: MakeRig) -> None:
    rig = await make_rig()
    rig.pool.close()
    rig.pool.refill()
    await rig.settle()
    assert rig.counts == {}
    assert all(sandbox.destroyed for sandbox in rig.fake.sandboxes)


async def test_a_checkpoint_that_fails_to_start_ahead_ends_in_quarantine(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("readie_worker.pool.FIRST_PAUSE_S", 0.001)
    rig = await make_rig(per_checkpoint=0)
    for _ in range(3):
        await rig.holdings.failed(rig.key(EMPTY), "it does not start")
    assert [one.key for one in rig.holdings.checkpoints] == [
        rig.key("checkpoint_1"),
        rig.key("checkpoint_2"),
    ]
    assert "it does not start" in rig.holdings.why_not(rig.key(EMPTY))


async def test_checkpoints_past_the_memory_for_zygotes_are_refused_with_that_reason(
    make_rig: MakeRig,
) -> None:
    rig = await make_rig(resident_budget=2)
    assert len(rig.holdings.checkpoints) == 2
    assert "no memory is left" in rig.holdings.why_not(rig.key("checkpoint_2"))
    assert len(rig.fake.adopted) == 2


async def test_a_generation_of_which_nothing_can_be_used_does_not_replace_one_that_works(
    make_rig: MakeRig,
) -> None:
    rig = await make_rig()
    write_generation(rig.folder, {EMPTY: []}, created="20270101T000000", python="3.99.0")
    await rig.holdings.refresh()
    assert rig.holdings.generation is not None
    assert rig.holdings.generation.id == rig.generation
    assert "captured with Python 3.99" in rig.holdings.error
