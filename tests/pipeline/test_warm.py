"""What an environment is warmed with, when nobody has said what its functions import."""

import fcntl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from readie_pipeline.commands.warm import choose
from readie_pipeline.console import Terminal
from readie_pipeline.corpus.dataset import Resources, Workload
from readie_pipeline.measure.interpreter import Interpreter
from readie_pipeline.measure.inventory import Inventory
from readie_pipeline.progress import LineProgress
from readie_pipeline.warming.choosing import MOST_USUAL, expected_workloads, recorded_workloads
from readie_pipeline.warming.usual import usual_imports
from readie_wire.manifest import load_manifest
from support.fake_services import GATEWAY_TOKEN, fake_services
from support.made_up_packages import Environment


def warm(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "readie_pipeline", "warm", "--folder", str(folder)]
    return subprocess.run(
        [*command, "--runtime", "fork", *options],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_usual_imports_are_modules_that_workloads_share() -> None:
    usual = usual_imports()
    assert usual[0] == (("numpy",), 48)
    assert all(count >= 2 and list(modules) == sorted(modules) for modules, count in usual)


def test_what_is_installed_of_the_usual_imports_is_planned_for(
    environment: Environment, interpreter: Callable[[], Interpreter]
) -> None:
    environment.install("numpy", "1", {"numpy/__init__.py": ""})
    environment.install("pandas", "1", {"pandas/__init__.py": ""})
    environment.install("matplotlib", "1", {"matplotlib/__init__.py": ""})
    environment.install("nobody-imports-it", "1", {"nobody_imports_it.py": ""})
    workloads = expected_workloads(Inventory.take(interpreter()))
    assert {name for imports in workloads for name in imports} == {"matplotlib", "numpy", "pandas"}
    assert ("numpy", "pandas") in workloads
    assert ("matplotlib", "numpy") in workloads, "of matplotlib.pyplot, what is here"
    assert workloads["numpy",] > workloads["matplotlib",] > 0


def test_a_large_package_that_nobody_is_known_to_import_is_tried_too(tmp_path: Path) -> None:
    here = Inventory.take(Interpreter(tmp_path))
    names = {name for imports in expected_workloads(here) for name in imports}
    assert len(names) > 3
    assert len(names) <= MOST_USUAL + 8
    assert "botocore" in names, "21 MB, and in no usual set"
    assert not names & {"mypy", "pip", "ruff", "readie"}, "no function imports them"


def test_calls_that_were_recorded_count_as_often_as_they_were_made(
    environment: Environment, interpreter: Callable[[], Interpreter]
) -> None:
    environment.install("here", "1", {"here/__init__.py": "", "here/part.py": ""})
    environment.install("there", "1", {"there.py": ""})
    recorded = [
        workload(3_000_000, "here", "here.part", "here.part.thing"),
        workload(4, "here.attribute", "there"),
        workload(9, "nowhere"),
        workload(9),
    ]
    assert recorded_workloads(recorded, Inventory.take(interpreter())) == {
        ("here", "here.part"): 3_000_000,
        ("here", "there"): 4,
    }


def workload(count: int, *imports: str) -> Workload:
    return Workload("1", "recorded", Resources(imports), count=count)


def test_what_calls_have_imported_is_measured_and_nothing_else(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(GATEWAY_TOKEN)
    with fake_services() as fake:
        fake.recorded = [{"imports": ["six", "not_here"], "count": 120, "day": "2026-11-29"}]
        done = warm(tmp_path / "warm", "--recorded", fake.url, "--token-file", str(token))
    assert done.returncode == 0, done.stderr
    assert "plans from 120 calls that were recorded" in done.stdout
    assert "measures 1 module: six" in done.stdout


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        ([{"imports": ["not_here"], "count": 9}], "no call that was recorded imports anything"),
        ([{"imports": "x"}], "what calls import is not known"),
    ],
)
def test_without_calls_to_plan_from_it_plans_from_what_is_usual(
    environment: Environment,
    interpreter: Callable[[], Interpreter],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    recorded: list[dict[str, Any]],
    said: str,
) -> None:
    environment.install("numpy", "1", {"numpy/__init__.py": ""})
    token = tmp_path / "token"
    token.write_text(GATEWAY_TOKEN)
    with fake_services() as fake:
        fake.recorded = recorded
        chosen = choose(Terminal(), fake.url, token, Inventory.take(interpreter()))
    assert {name for imports in chosen for name in imports} == {"numpy"}
    told = capsys.readouterr().out
    assert said in told
    assert "plans from what scripts usually import" in told


def test_progress_is_told_in_lines_now_and_then() -> None:
    said: list[str] = []
    now = 0.0

    def clock() -> float:
        return now

    for _ in LineProgress(said.append, 5.0, clock).track([str(n) for n in range(10)], "measuring"):
        now += 2.5
    assert said[0] == "measuring: 2 of 10 done, about 20 s left"
    assert len(said) == 4


def test_the_generation_gets_its_own_name_and_the_journal_goes(tmp_path: Path) -> None:
    done = warm(tmp_path / "warm", "--imports", "six", "--imports", "no_such_module_anywhere")
    assert done.returncode == 0, done.stderr
    assert "no_such_module_anywhere is left out: ModuleNotFoundError" in done.stdout
    (folder,) = (entry for entry in (tmp_path / "warm").iterdir() if entry.is_dir())
    manifest = load_manifest((folder / "manifest.json").read_bytes())
    assert folder.name == manifest.generation
    assert [one.imports for one in manifest.checkpoints] == [(), ("six",)]
    assert {entry.name for entry in (tmp_path / "warm").iterdir()} == {folder.name, ".lock"}


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = warm(tmp_path, "--imports", "six")
    assert done.returncode == 1
    assert "another run is at work in" in done.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / ".lock"]
