"""``readie up`` without a generation makes one beside the calls, and serves it without a restart."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import six  # type: ignore[import-untyped]

import readie
from readie._cli import installed
from readie._cli.children import Child
from readie._cli.warm_folder import Origin, WarmFolder, changes_since
from readie._cli.warming import ENOUGH_CALLS, Fleet, Warming
from readie_wire.catalogue import Catalogue, CatalogueCheckpoint, Item, dump_catalogue
from readie_wire.holdings import (
    GenerationState,
    HeldCheckpoint,
    HeldGeneration,
    Holding,
    Refusal,
    RefusalKind,
    Tier,
)
from readie_wire.outcome import Receipt
from support.embedded import Up, alive, family, started, until
from support.generations import write_generation
from support.gvisor_kit import real_runsc

SERVED = "start behind them from now on"


@readie.remote
def made_with_six() -> int:
    import six

    return len(six.text_type("four"))


def called(up: Up) -> Receipt:
    with up.client() as client:
        call = made_with_six.bind(client=client).spawn()
        assert call.get(60) == 4
        assert call.receipt is not None
        return call.receipt


def until_served(up: Up) -> None:
    until("it serves", lambda: SERVED in up.printed or up.process.poll() is not None)
    assert up.process.poll() is None, up.printed


def test_it_warms_itself_once_and_again_after_an_upgrade(short_path: Path) -> None:
    data, upgraded = short_path / "data", short_path / "upgraded"
    with started(data, "--warm", "six", READIE_NO_WARM="false") as up:
        assert "none: every call imports for itself" in up.printed
        assert called(up).start_kind in {"cold", "forked"}  # the latter where warming was quicker
        until_served(up)
        assert "warming: makes checkpoints in the background, because there are none" in up.printed
        receipt = called(up)
        assert receipt.start_kind == "forked"
        made = receipt.generation
    with started(data, "--warm", "six", READIE_NO_WARM="false") as next_start:
        assert f"2 of {made}" in next_start.printed
        assert called(next_start).generation == made
        assert next_start.stop() == 0
        assert "warming" not in next_start.printed
    (upgraded / "six-999.dist-info").mkdir(parents=True)
    (upgraded / "six-999.dist-info/METADATA").write_text("Name: six\nVersion: 999\n")
    with started(
        data, "--warm", "six", READIE_NO_WARM="false", PYTHONPATH=str(upgraded)
    ) as after_upgrade:
        assert f"2 of {made}" in after_upgrade.printed, "it serves until there is another one"
        until_served(after_upgrade)
        assert f"because six {six.__version__} is 999 now" in after_upgrade.printed
        receipt = called(after_upgrade)
        assert receipt.start_kind == "forked"
        assert receipt.generation != made


def test_ctrl_c_ends_the_warming_too(short_path: Path) -> None:
    with started(short_path / "data", "--warm", "six", READIE_NO_WARM="false") as up:
        until("it has begun", lambda: "warming: makes checkpoints" in up.printed)
        processes = family(up.process.pid)
        assert up.stop() == 0
        until("all are gone", lambda: not alive(processes))
        assert "Traceback" not in up.printed


def test_isolation_comes_before_checkpoints_that_only_another_runtime_can_use(
    short_path: Path,
) -> None:
    real_runsc()
    write_generation(short_path / "forks", {"checkpoint_1": ["six"]})
    options = ("--generations", str(short_path / "forks"), "--runtime", "auto")
    with started(short_path / "data", *options, READIE_NO_WARM="false") as up:
        assert "gvisor, because runsc works on this machine" in up.printed
        assert "captured for fork, this worker runs gvisor" in up.printed
        until_served(up)
        assert called(up).start_kind in {"restored", "pool"}


def test_without_the_pipelines_libraries_it_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installed, "_TELLING_PIPELINE", ("no_such_library",))
    warming = _warming(tmp_path, [{"flavor": "cpu", "runtime": "fork", "generations": []}])
    warming.begin()
    warming.look()
    told = capsys.readouterr().out
    assert "no_such_library missing" in told
    assert "pip install 'readie[pipeline]'" in told


def test_a_folder_that_the_user_gave_is_served_as_long_as_anything_in_it_can_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = {"generation": "20260102T030405-0123abcd", "checkpoints": ["checkpoint_1"]}
    workers = [{"flavor": "cpu", "runtime": "gvisor", "generations": [held]}]
    warming = _warming(tmp_path, workers, given=tmp_path / "given")
    warming.begin()
    warming.look()
    assert capsys.readouterr().out == ""


def test_a_generation_that_no_worker_takes_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installed, "_TELLING_PIPELINE", ("no_such_library",))
    folder = WarmFolder(tmp_path, asked=False)
    place = folder.place("cpu", "fork")
    made = write_generation(place / "1", {"checkpoint_1": ["json"]})
    folder.note(place, Origin.here([]))
    held = {"generation": made.generation, "checkpoints": []}
    refusal = Refusal(RefusalKind.PYTHON, "captured with Python 3.99")
    checkpoints = {"checkpoint_1": HeldCheckpoint(1, Tier.DISK, refusal=refusal)}
    told_of = HeldGeneration(made.generation, GenerationState.SERVED, checkpoints)
    holding = Holding((told_of,)).to_json()
    workers = [{"flavor": "cpu", "runtime": "fork", "generations": [held], "holding": holding}]
    warming, told = _warming(tmp_path, workers), ""
    warming.begin()

    def has_told() -> bool:
        nonlocal told
        warming.look()
        told += capsys.readouterr().out
        return "no checkpoints are made" in told

    until("it is told", has_told)
    assert f"{made.generation} is not served: captured with Python 3.99" in told


@pytest.mark.parametrize(
    ("recorded", "planned_from", "makes"),
    [
        (ENOUGH_CALLS, 0, True),
        (ENOUGH_CALLS - 1, 0, False),
        (ENOUGH_CALLS * 9, ENOUGH_CALLS, False),
    ],
)
def test_once_enough_calls_have_shown_what_they_import_those_are_planned_from(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    recorded: int,
    planned_from: int,
    makes: bool,
) -> None:
    folder = WarmFolder(tmp_path, asked=False)
    place = folder.place("cpu", "fork")
    made = write_generation(place / "1", {"checkpoint_1": ["json"]})
    folder.note(place, Origin.here([], planned_from))
    folder.serve(place / "1")
    held = {"generation": made.generation, "checkpoints": ["checkpoint_1"]}
    workers = [{"flavor": "cpu", "runtime": "fork", "generations": [held]}]
    warming = _warming(tmp_path, workers, recorded=recorded)
    warming.begin()
    if makes:
        with pytest.raises(AssertionError, match="'--recorded', 'the gateway'"):
            warming.look()
        assert f"because {recorded} calls have shown what they import" in capsys.readouterr().out
    else:
        warming.look()
        assert capsys.readouterr().out == ""


def test_what_was_made_before_calls_were_counted_can_be_read(tmp_path: Path) -> None:
    folder = WarmFolder(tmp_path, asked=False)
    place = folder.place("cpu", "fork")
    (place / "made.json").write_text('{"imports": [], "distributions": {"six": "1"}}')
    assert folder.made_from(place) == Origin([], {"six": "1"}, 0)


def test_what_was_upgraded_or_removed_or_is_new_and_large_is_a_change(tmp_path: Path) -> None:
    then = {"six": "0.0.1", "python-dateutil": "0", "numpy": "0", "never-was": "1"}
    items = {
        "six": Item(0.1, 1.0, distribution="six"),
        "gone": Item(0.1, 1.0, distribution="never-was"),
        "dateutil": Item(0.1, 1.0, distribution="python-dateutil"),
    }
    held = [CatalogueCheckpoint("checkpoint_1", items=("six", "gone"), canonical=("six",))]
    catalogue = Catalogue("cpu", 0.001, items, held)
    (tmp_path / "catalogue.json").write_bytes(dump_catalogue(catalogue))
    changes = changes_since(tmp_path, then)
    assert "never-was is gone" in changes
    assert any(change.startswith("six 0.0.1 is ") for change in changes)
    assert "pandas is new" in changes
    assert not any("dateutil" in change for change in changes), "no checkpoint holds it"
    assert not any(change.startswith("numpy") for change in changes), "no checkpoint holds it"


def test_the_link_leads_to_what_was_served_last_or_to_what_the_runtime_can_use(
    tmp_path: Path,
) -> None:
    folder = WarmFolder(tmp_path, asked=False)
    forks, sandboxes = folder.place("cpu", "fork") / "1", folder.place("cpu", "gvisor") / "1"
    for generation in (forks, sandboxes):
        write_generation(generation, {"checkpoint_1": ["json"]})
    folder.serve(sandboxes)
    folder.serve_own("auto")
    assert folder.serves(sandboxes)
    folder.serve_own("fork")
    assert folder.serves(forks)
    folder.serve(tmp_path / "of the user's own")
    folder.serve_own("gvisor")
    assert folder.serves(sandboxes)


def test_older_generations_are_removed_and_not_the_one_that_is_served(tmp_path: Path) -> None:
    folder = WarmFolder(tmp_path, asked=False)
    place = folder.place("cpu", "fork")
    for name in ("1", "2", "3"):
        write_generation(place / name, {"checkpoint_1": ["json"]})
    folder.serve(place / "1")
    folder.drop_older(place)
    assert sorted(entry.name for entry in place.iterdir()) == ["1", "3"]


def _warming(
    folder: Path, workers: Sequence[dict[str, Any]], given: Path | None = None, recorded: int = 0
) -> Warming:
    def no_child(command: list[str]) -> Child:
        raise AssertionError(command)

    made = WarmFolder(folder, asked=given is not None)
    options = ["--recorded", "the gateway"]
    fleet = Fleet(lambda: workers, lambda generation: True, lambda: recorded, options)
    return Warming(made, fleet, no_child, given=given, imports=())
