from collections.abc import Sequence
from pathlib import Path
from platform import python_version
from typing import Any

import pytest

from readie_wire.envelope import CallKind
from readie_wire.lifecycle import State
from readie_wire.outcome import ErrorKind
from readie_wire.records import CallRecord, Choice
from readie_worker.errors import CallRefusedError
from readie_worker.generations import Machine
from readie_worker.holdings import Holdings
from readie_worker.options import CallOptions
from readie_worker.sandbox.fake import FakeRuntime
from readie_worker.selection import Selection, Start
from support.generations import EMPTY, write_generation

ELSEWHERE = "20000101T000000-00000000"


@pytest.fixture
async def holdings(tmp_path: Path) -> Holdings:
    write_generation(
        tmp_path,
        {EMPTY: [], "checkpoint_1": ["json"], "checkpoint_2": ["json", "decimal"]},
        import_environment={"checkpoint_2": ["TZ"]},
    )
    return await held(tmp_path)


async def held(folder: Path | None) -> Holdings:
    runtime = FakeRuntime()
    await runtime.open()
    machine = Machine("cpu", "fork", python_version())
    holdings = Holdings(runtime, machine, folder, resident=lambda _: 0, resident_budget=0)
    await holdings.refresh()
    return holdings


def record_of(choice: Choice, imports: tuple[str, ...] = (), **options: Any) -> CallRecord:
    return CallRecord(
        "call-1",
        State.LEASED,
        "default",
        "cpu",
        CallKind.PICKLE,
        "f",
        imports=imports,
        choice=choice,
        options=options,
    )


def plan(
    holdings: Holdings, choice: Choice, imports: tuple[str, ...] = (), **options: Any
) -> Start:
    record = record_of(choice, imports, **options)
    return Selection(holdings).plan(record, CallOptions.of(record))


def name_of(start: Start) -> str | None:
    return start.checkpoint.key.rpartition("/")[2] if start.checkpoint else None


def generation_of(holdings: Holdings) -> str:
    assert holdings.generation is not None
    return holdings.generation.id


async def test_the_choice_of_the_gateway_counts_for_a_generation_held_here(
    holdings: Holdings,
) -> None:
    choice = Choice(generation_of(holdings), "checkpoint_2", predicted_s=0.5)
    start = plan(holdings, choice)
    assert (name_of(start), start.predicted_s, start.overruled) == ("checkpoint_2", 0.5, "")


async def test_a_cold_choice_for_a_generation_held_here_is_cold(holdings: Holdings) -> None:
    start = plan(holdings, Choice(generation_of(holdings), None, predicted_s=2.0), ("json",))
    assert (start.checkpoint, start.predicted_s) == (None, 2.0)


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ((), EMPTY),
        (("json",), "checkpoint_1"),
        (("json.decoder", "decimal"), "checkpoint_2"),
        (("unheard_of",), EMPTY),
    ],
)
@pytest.mark.parametrize("choice", [Choice(ELSEWHERE, "checkpoint_9"), Choice()])
async def test_another_generation_is_priced_again_by_the_same_rule(
    holdings: Holdings, imports: tuple[str, ...], expected: str, choice: Choice
) -> None:
    start = plan(holdings, choice, imports)
    assert name_of(start) == expected
    assert ("checkpoint_9" in start.overruled) is (choice.key is not None)


async def test_pricing_again_asks_what_is_eligible_first(holdings: Holdings) -> None:
    both = ("json", "decimal")
    assert name_of(plan(holdings, Choice(), both)) == "checkpoint_2"
    assert name_of(plan(holdings, Choice(), both, env={"TZ": "UTC"})) == "checkpoint_1"
    assert name_of(plan(holdings, Choice(), both, memory=33 << 20)) == "checkpoint_1"


async def test_a_call_that_disables_checkpoints_is_cold(holdings: Holdings) -> None:
    choice = Choice(generation_of(holdings), "checkpoint_1", cold_s=3.0)
    start = plan(holdings, choice, disable_optimized_execution=True)
    assert (start.checkpoint, start.predicted_s) == (None, 3.0)


@pytest.mark.parametrize(
    ("generation", "reason"), [(None, "does not list it"), (ELSEWHERE, "holds generation")]
)
async def test_a_pin_that_cannot_be_honoured_is_refused_with_the_reason(
    holdings: Holdings, generation: str | None, reason: str
) -> None:
    choice = Choice(generation or generation_of(holdings), "checkpoint_9", pinned=True)
    with pytest.raises(CallRefusedError, match=reason) as refused:
        plan(holdings, choice, checkpoint_id="checkpoint_9")
    assert refused.value.error.kind is ErrorKind.INVALID_REQUEST
    assert "'checkpoint_9'" in refused.value.error.message


async def test_a_pin_that_is_held_is_honoured_whatever_it_costs(holdings: Holdings) -> None:
    choice = Choice(generation_of(holdings), "checkpoint_2", pinned=True)
    assert name_of(plan(holdings, choice, checkpoint_id="checkpoint_2")) == "checkpoint_2"


async def test_without_a_generation_every_start_is_cold_and_says_why() -> None:
    holdings = await held(None)
    assert plan(holdings, Choice()) == Start(None)
    start = plan(holdings, Choice(ELSEWHERE, "checkpoint_1", cold_s=1.0))
    assert (start.checkpoint, start.predicted_s) == (None, 1.0)
    assert "this worker has no generation" in start.overruled


async def test_a_checkpoint_that_was_given_up_is_priced_around(holdings: Holdings) -> None:
    key = f"{generation_of(holdings)}/checkpoint_1"
    for _ in range(3):
        await holdings.failed(key, "broken image")
    start = plan(holdings, Choice(generation_of(holdings), "checkpoint_1"), ("json",))
    assert name_of(start) == "checkpoint_2"
    assert "broken image" in start.overruled


def stand_in(
    holdings: Holdings,
    ready: Sequence[str],
    *,
    imports: tuple[str, ...] = ("json",),
    start_s: float | None = 0.3,
    pinned: bool = False,
    **options: Any,
) -> Start | None:
    """For a call whose own checkpoint, ``checkpoint_1``, would start it after ``start_s``."""
    generation = generation_of(holdings)
    choice = Choice(generation, "checkpoint_1", pinned, predicted_start_s=start_s)
    record, selection = record_of(choice, imports, **options), Selection(holdings)
    options_of_it = CallOptions.of(record)
    planned = selection.plan(record, options_of_it)
    keys = [f"{generation}/{name}" for name in ready]
    return selection.stand_in(record, options_of_it, planned, keys)


async def test_a_ready_sandbox_that_holds_enough_stands_in_and_it_is_said(
    holdings: Holdings,
) -> None:
    found = stand_in(holdings, [EMPTY, "checkpoint_2"])

    assert found is not None
    assert name_of(found) == "checkpoint_2"
    assert found.predicted_start_s == 0
    assert found.overruled.endswith("/checkpoint_1: a sandbox of checkpoint_2 was ready")


async def test_of_those_that_are_ready_the_one_stands_in_that_lacks_least(
    holdings: Holdings,
) -> None:
    found = stand_in(holdings, [EMPTY, "checkpoint_2"], imports=("json", "decimal"), start_s=2.0)

    assert found is not None
    assert name_of(found) == "checkpoint_2"


@pytest.mark.parametrize(
    ("ready", "changes"),
    [
        ([], {}),
        ([EMPTY], {}),  # importing takes longer than the start
        (["checkpoint_2"], {"start_s": 0.01}),  # next to nothing is gained
        (["checkpoint_2"], {"start_s": None}),
        (["checkpoint_2"], {"env": {"TZ": "UTC"}}),  # not eligible
        (["checkpoint_2"], {"memory": 1 << 20}),
        (["checkpoint_2"], {"pinned": True}),
        (["checkpoint_2"], {"disable_optimized_execution": True}),
        (["checkpoint_9"], {}),
    ],
)
async def test_nothing_stands_in_where_it_would_be_slower_wrong_or_unasked(
    holdings: Holdings, ready: list[str], changes: dict[str, Any]
) -> None:
    assert stand_in(holdings, ready, **changes) is None
