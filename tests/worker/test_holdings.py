"""Which checkpoints are worth most here, and what is told when the generation is another one."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from platform import python_version
from typing import Any

import pytest
from structlog.testing import capture_logs

from readie_wire.holdings import GenerationState, RefusalKind
from readie_wire.manifest import Manifest
from readie_worker.generations import Machine
from readie_worker.holdings import QUARANTINE_AFTER, Holdings
from readie_worker.sandbox.api import Limits, SandboxSpec
from readie_worker.sandbox.fake import FakeRuntime, FakeSandbox
from readie_worker.stock import tell_holding
from support.generations import EMPTY, write_generation

LOAD_TIMES = {"slow": 3.0, "quick": 1.0}
CHECKPOINTS = {EMPTY: [], "checkpoint_1": ["quick"], "checkpoint_2": ["slow"]}


@pytest.fixture
async def holdings(tmp_path: Path) -> Holdings:
    runtime = FakeRuntime()
    await runtime.open()
    machine = Machine("cpu", "fork", python_version())
    return Holdings(runtime, machine, tmp_path, resident=lambda _: 0, resident_budget=0)


async def serve(
    holdings: Holdings,
    folder: Path,
    checkpoints: Mapping[str, Sequence[str]],
    created: str,
    **changes: Any,
) -> Manifest:
    made = write_generation(folder, checkpoints, load_times=LOAD_TIMES, created=created, **changes)
    await holdings.refresh()
    return made


def by_value(holdings: Holdings) -> list[str]:
    return [checkpoint.key.rpartition("/")[2] for checkpoint in holdings.by_value]


async def test_seconds_saved_count_as_often_as_they_are_wanted_here(
    holdings: Holdings, tmp_path: Path
) -> None:
    made = await serve(holdings, tmp_path, CHECKPOINTS, "20260101T000000")
    assert by_value(holdings) == ["checkpoint_2", "checkpoint_1", EMPTY]
    for _ in range(3):
        holdings.worked(f"{made.generation}/checkpoint_1")
    assert by_value(holdings) == ["checkpoint_1", "checkpoint_2", EMPTY]
    moved = {EMPTY: ["slow"], "checkpoint_7": ["quick"]}
    await serve(holdings, tmp_path, moved, "20260102T000000")
    assert by_value(holdings) == ["checkpoint_7", EMPTY]  # what was wanted is still wanted
    for _ in range(9):
        holdings.worked(f"{made.generation}/{EMPTY}")  # a call that began before the swap
    assert by_value(holdings) == ["checkpoint_7", EMPTY]


async def test_what_a_plan_expects_over_its_corpus_comes_before_what_one_start_saves(
    holdings: Holdings, tmp_path: Path
) -> None:
    savings = {"checkpoint_1": 500.0, "checkpoint_2": 30.0}
    await serve(holdings, tmp_path, CHECKPOINTS, "20260101T000000", planned_savings=savings)
    assert by_value(holdings) == ["checkpoint_1", "checkpoint_2", EMPTY]


async def test_a_swap_is_told_once_and_what_is_loaded_after_each(
    holdings: Holdings, tmp_path: Path
) -> None:
    with capture_logs() as told:
        first = await serve(holdings, tmp_path, CHECKPOINTS, "20260101T000000")
        second = await serve(holdings, tmp_path, {EMPTY: []}, "20260102T000000")
        await holdings.refresh()
    assert holdings.swaps == 1
    (swap,) = [one for one in told if one["event"] == "generation swapped"]
    assert (swap["before"], swap["after"]) == (first.generation, second.generation)
    loaded = [one["checkpoints"] for one in told if one["event"] == "artifacts loaded"]
    assert loaded == [3, 1]


async def test_a_start_that_chose_before_a_swap_finds_what_it_chose(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    await runtime.open()
    machine = Machine("cpu", "fork", python_version())
    holdings = Holdings(runtime, machine, tmp_path, resident=lambda _: 0, resident_budget=0)
    await serve(holdings, tmp_path, {EMPTY: []}, "20260101T000000")
    (chosen,) = holdings.checkpoints
    starts: list[asyncio.Task[FakeSandbox]] = []

    def start() -> None:  # as a call would that was taken just before
        restore = runtime.restore(chosen, SandboxSpec("sandbox-1", Limits(1 << 28)))
        starts.append(asyncio.create_task(restore))

    holdings.on_change = start
    await serve(holdings, tmp_path, {EMPTY: []}, "20260102T000000")
    assert (await starts[0]).checkpoint is chosen
    assert chosen.key not in runtime.adopted
    await runtime.close()


async def test_a_checkpoint_that_fails_too_often_is_refused_as_failing(
    holdings: Holdings, tmp_path: Path
) -> None:
    made = await serve(holdings, tmp_path, CHECKPOINTS, "20260101T000000")
    for _ in range(QUARANTINE_AFTER):
        await holdings.failed(f"{made.generation}/checkpoint_1", "it died")
    refusal = holdings.refused["checkpoint_1"]
    assert refusal.kind is RefusalKind.FAILING
    assert "it died" in refusal.reason
    assert "checkpoint_1" not in by_value(holdings)


async def test_a_generation_of_which_nothing_can_be_restored_is_told_with_the_reasons(
    holdings: Holdings, tmp_path: Path
) -> None:
    served = await serve(holdings, tmp_path, CHECKPOINTS, "20260101T000000")
    later = await serve(holdings, tmp_path, CHECKPOINTS, "20260102T000000", python="3.99.1")
    told = {one.generation: one for one in tell_holding(holdings, None, {}).generations}
    assert told.keys() == {served.generation, later.generation}
    assert told[served.generation].state is GenerationState.SERVED
    refused = told[later.generation].checkpoints
    assert {one.refusal.kind for one in refused.values() if one.refusal} == {RefusalKind.PYTHON}
    assert len(refused) == len(CHECKPOINTS)
    await serve(holdings, tmp_path, CHECKPOINTS, "20260103T000000")
    (held,) = tell_holding(holdings, None, {}).generations
    assert all(one.refusal is None for one in held.checkpoints.values())
