"""The way from a pile of scripts to a captured plan, by the commands an operator types."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from readie_pipeline.corpus.dataset import Dataset, Resources, Workload, load_dataset
from readie_pipeline.measure.metadata import Measurement, Metadata, dump_metadata, load_metadata
from readie_pipeline.plan.plan import load_plan
from readie_pipeline.workspace import Workspace
from readie_wire.manifest import load_manifest
from support.embedded import until
from support.made_up_packages import Environment


def pipeline(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "readie_pipeline", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def succeed(*arguments: object) -> str:
    done = pipeline(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Ten requests, and measurements with the numbers of the worked example."""
    folder = tmp_path / "data"
    lines = tmp_path / "sets.jsonl"
    needs = ["dateutil"] * 5 + ["joblib"] * 3 + ["six"] * 2
    lines.write_text(
        "".join(json.dumps({"id": n, "imports": [name]}) + "\n" for n, name in enumerate(needs))
    )
    succeed("corpus", "--import-sets", lines, "--data", folder)
    items = {
        "six": Measurement(0.15, 60.0, modules=("six",), distribution="six", version="1.17.0"),
        "dateutil": Measurement(
            0.90,
            80.0,
            modules=("dateutil", "six"),
            dependencies=("six",),
            distribution="python-dateutil",
        ),
        "joblib": Measurement(
            4.0,
            400.0,
            modules=("joblib", "six"),
            dependencies=("six",),
            distribution="joblib",
            version="1.6.0",
        ),
    }
    (folder / "metadata").mkdir()
    (folder / "metadata/cpu.json").write_bytes(dump_metadata(Metadata("3.11", items)))
    return folder


def test_a_plan_is_explained_round_by_round(data: Path, tmp_path: Path) -> None:
    plan_dir = tmp_path / "plan"
    said = succeed("plan", "--data", data, "--alpha", 0.005, "--explain", "--plan-dir", plan_dir)
    assert "without checkpoints: 18.0 s of imports over all requests" in said
    assert "round 1: total 19.0 s" in said
    assert "+       19.0 s  dateutil" in said
    assert "        19.5 s  six" in said
    assert "        27.5 s  joblib" in said
    assert "round 3: total 11.0 s" in said
    assert "ended: no candidate lowers the cost" in said
    assert "serves 5 requests" in said
    assert "this one misses at most 0.0% of what could be saved" in said
    entries = load_plan((plan_dir / "checkpoints.json").read_bytes()).entries
    assert [entry.requests for entry in entries] == [5, 3, 2]
    requirements = (plan_dir / "rootfs-requirements.txt").read_text()
    assert requirements == "joblib==1.6.0\npython-dateutil\nsix==1.17.0\n"
    best = succeed(
        "plan", "--data", data, "--planner", "exact", "--alpha", 0.005, "--plan-dir", plan_dir
    )
    assert "this one misses at most 0.0% of what could be saved" in best
    assert len(load_plan((plan_dir / "checkpoints.json").read_bytes()).entries) == 3


def test_what_the_root_filesystem_lacks_is_told_and_written_down(
    data: Path, tmp_path: Path
) -> None:
    plan_dir, rootfs = tmp_path / "plan", tmp_path / "rootfs"
    (rootfs / "etc").mkdir(parents=True)
    skipped = "left_pad==1.0\nJoblib==1.6.0: no matching distribution\n"
    (rootfs / "etc/readie-rootfs-skipped.txt").write_text(skipped)
    arguments = ("--data", data, "--alpha", 0.005, "--plan-dir", plan_dir, "--rootfs", rootfs)
    done = pipeline("plan", *arguments)
    assert done.returncode == 0, done.stderr
    assert "the root filesystem was built without left-pad, joblib; see" in done.stderr
    assert "checkpoint_2 needs joblib: it cannot be captured" in done.stderr
    assert (plan_dir / "rootfs-skipped.txt").read_text() == skipped


def test_a_fixed_plan_is_written_from_the_measurements_alone(data: Path, tmp_path: Path) -> None:
    (data / "datasets/cpu.json").unlink()
    plan_dir = tmp_path / "plan"
    arguments = ("--planner", "fixed", "--imports", "dateutil,nowhere", "--imports", "six")
    done = pipeline("plan", "--data", data, "--plan-dir", plan_dir, *arguments)
    assert done.returncode == 0, done.stderr
    assert "checkpoint_1: dateutil, nowhere; 140.0 MB" in done.stdout
    assert "nowhere was not measured" in done.stderr
    entries = load_plan((plan_dir / "checkpoints.json").read_bytes()).entries
    assert [entry.imports for entry in entries] == [("dateutil", "nowhere"), ("six",)]
    assert (plan_dir / "rootfs-requirements.txt").read_text() == "python-dateutil\nsix==1.17.0\n"


def test_what_a_corpus_loads_is_measured_where_it_lies_and_is_in_no_checkpoint(
    environment: Environment, tmp_path: Path
) -> None:
    environment.install(
        "joblib", "1", {"joblib.py": "import runpy\ndef load(path): return runpy.run_path(path)"}
    )
    model, data = tmp_path / "churn.joblib", tmp_path / "data"
    model.write_text("import time; time.sleep(0.3)")
    workload = Workload(
        "1", "a.py", Resources(packages=("joblib",), models=("churn", "org/gone-1.5"))
    )
    Workspace(data, "cpu").write_dataset(Dataset("cpu", (workload,)))
    measuring = ("--only-corpus", "--repeats", 1, "--python", environment.python)
    done = pipeline("analyze", "--data", data, *measuring, "--resource", f"model:churn={model}")
    assert done.returncode == 0, done.stderr
    assert (
        "1 of the corpus's datasets, models and tokenizers are not on this machine" in done.stderr
    )
    assert "model:org/gone-1.5" in done.stderr
    items = load_metadata((data / "metadata/cpu.json").read_bytes()).items
    assert set(items) == {"joblib", "model:churn"}
    assert items["model:churn"].load_time > 0.3
    assert items["model:churn"].dependencies == ("joblib",)
    succeed("plan", "--data", data, "--alpha", 1e-9, "--plan-dir", tmp_path / "plan")
    entries = load_plan((tmp_path / "plan/checkpoints.json").read_bytes()).entries
    assert [entry.imports for entry in entries] == [("joblib",)]


def test_the_same_input_gives_the_same_plan(data: Path, tmp_path: Path) -> None:
    plans = []
    for name in ("one", "two"):
        succeed("plan", "--data", data, "--plan-dir", tmp_path / name)
        plans.append((tmp_path / name / "checkpoints.json").read_bytes())
    assert plans[0] == plans[1]


def test_a_plan_is_built_with_the_empty_checkpoint_in_front(data: Path, tmp_path: Path) -> None:
    plan_dir, out = tmp_path / "plan", tmp_path / "generation"
    succeed("plan", "--data", data, "--alpha", 0.005, "--plan-dir", plan_dir)
    succeed("build", "--plan-dir", plan_dir, "--data", data, "--runtime", "fork", "--out", out)
    manifest = load_manifest((out / "manifest.json").read_bytes())
    assert [(one.id, one.imports) for one in manifest.checkpoints] == [
        ("checkpoint_0", ()),
        ("checkpoint_1", ("dateutil", "six")),
        ("checkpoint_2", ("joblib", "six")),
        ("checkpoint_3", ("six",)),
    ]
    assert [one.planned_saving_s > 0 for one in manifest.checkpoints] == [
        *(False, True, True, False)
    ]


def test_capture_plans_and_builds_in_one_go(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "generation"
    arguments = ("--data", data, "--max-checkpoints", 1, "--runtime", "fork", "--out", out)
    said = succeed("capture", *arguments, "--save-plan", tmp_path / "plan")
    assert "checkpoint_1: joblib" in said
    manifest = load_manifest((out / "manifest.json").read_bytes())
    assert [one.id for one in manifest.checkpoints] == ["checkpoint_0", "checkpoint_1"]
    assert (tmp_path / "plan" / "checkpoints.json").exists()


def test_a_missing_input_names_the_command_that_writes_it(tmp_path: Path) -> None:
    done = pipeline("plan", "--data", tmp_path)
    assert done.returncode == 1
    assert "metadata/cpu.json is not there; `readie-pipeline analyze` writes it" in done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--alpha", "nan"),
        ("--alpha", "inf"),
        ("--size-budget-mb", "nan"),
        ("--max-checkpoints", "0"),
    ],
)
def test_what_cannot_be_reckoned_with_is_refused(tmp_path: Path, option: str, value: str) -> None:
    done = pipeline("plan", "--data", tmp_path, option, value)
    assert done.returncode == 2
    assert f"Invalid value for '{option}'" in done.stderr


def test_a_folder_without_workloads_replaces_no_corpus(data: Path, tmp_path: Path) -> None:
    before = (data / "datasets/cpu.json").read_bytes()
    (tmp_path / "empty").mkdir()
    done = pipeline("corpus", "--folder", tmp_path / "empty", "--data", data)
    assert done.returncode == 1
    assert "no workload was found" in done.stderr
    assert (data / "datasets/cpu.json").read_bytes() == before


def test_workloads_of_two_files_are_kept_apart_and_one_given_twice_counts_once(
    tmp_path: Path,
) -> None:
    options: list[object] = ["--data", tmp_path, "--no-check"]
    for name, imports in (("a", "six"), ("b", "numpy"), ("a", "six")):
        file = tmp_path / f"{name}.jsonl"
        file.write_text(json.dumps({"id": 1, "imports": [imports]}) + "\n")
        options += ["--import-sets", file]
    succeed("corpus", *options)
    succeed("corpus", *options, "--append")
    workloads = load_dataset((tmp_path / "datasets/cpu.json").read_bytes()).workloads
    assert [(one.id, *one.resources.packages) for one in workloads] == [
        ("1", "six"),
        ("1", "numpy"),
    ]


def test_a_place_that_cannot_be_written_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    sets = tmp_path / "sets.jsonl"
    sets.write_text('{"imports": ["six"]}\n')
    done = pipeline(
        "corpus", "--import-sets", sets, "--data", tmp_path / "data/below", "--no-check"
    )
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith(f"readie-pipeline: cannot write {tmp_path}/data/below")


def test_an_interpreter_may_be_named_by_a_relative_path(
    environment: Environment, tmp_path: Path
) -> None:
    environment.install("good", "1", {"good.py": ""})
    python = environment.python.relative_to(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "readie_pipeline", "analyze", "--python", python, "--repeats", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(load_metadata((tmp_path / "data/metadata/cpu.json").read_bytes()).items) == {"good"}


def test_an_interrupted_analysis_says_that_it_goes_on_and_does(
    environment: Environment, tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    began = tmp_path / "began"
    environment.install("a_first", "1", {"a_first.py": ""})
    environment.install(
        "slow",
        "1",
        {"slow.py": f"import pathlib, time; pathlib.Path({str(began)!r}).touch(); time.sleep(600)"},
    )
    command = ("analyze", "--python", environment.python, "--data", tmp_path / "data")
    run = start(*command)
    until("the second is imported", began.exists)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "the same command goes on" in said
    assert '"a_first' in (tmp_path / "data/metadata/cpu.journal").read_text()
    (environment.site_packages / "slow.py").write_text("")
    succeed(*command)
    assert set(load_metadata((tmp_path / "data/metadata/cpu.json").read_bytes()).items) == {
        "a_first",
        "slow",
    }


def test_imports_are_for_the_fixed_planner(tmp_path: Path) -> None:
    done = pipeline("capture", "--imports", "six", "--runtime", "fork", "--out", tmp_path / "g")
    assert done.returncode == 2
    assert "--imports needs --planner fixed" in done.stderr


def test_an_environment_is_analyzed_with_what_its_scripts_import(
    environment: Environment, tmp_path: Path
) -> None:
    environment.install(
        "shop", "2.0", {"shop/__init__.py": "", "shop/till.py": "", "shop/unused.py": ""}
    )
    environment.install("broken", "1.0", {"broken.py": "1/0"})
    environment.install("google-thing", "1.0", {"google/thing.py": ""})
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "sell.py").write_text("from shop import till, price\nimport helper")
    (scripts / "helper.py").write_text("")
    data = tmp_path / "data"
    said = succeed("corpus", "--folder", scripts, "--data", data, "--python", environment.python)
    assert "2 workloads, 1 of them import no package" in said
    dataset = load_dataset((data / "datasets/cpu.json").read_bytes())
    assert dataset.requests()[1] == ("shop", "shop.till", "shop.price")

    python = environment.python
    done = pipeline("analyze", "--data", data, "--python", python, "--repeats", 1)
    assert done.returncode == 0, done.stderr
    assert "broken could not be measured: ZeroDivisionError" in done.stderr
    metadata = load_metadata((data / "metadata/cpu.json").read_bytes())
    assert set(metadata.items) == {"shop", "shop.till"}
    assert metadata.distributions == {"shop": "2.0", "broken": "1.0", "google-thing": "1.0"}
    assert not (data / "metadata/cpu.journal").exists()


@pytest.mark.parametrize("command", ["corpus", "analyze", "plan", "build", "capture"])
def test_every_command_explains_itself(command: str) -> None:
    assert "Usage:" in succeed(command, "--help")
