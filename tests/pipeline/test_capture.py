"""`readie-pipeline capture` as an operator runs it: real zygotes, a real folder."""

import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from readie_wire.catalogue import load_catalogue
from readie_wire.manifest import load_manifest, load_meta
from support.interpreters import interpreter_with


def pipeline(
    *arguments: str, python: Path = Path(sys.executable), **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "readie_pipeline", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, **variables},
    )


def capture(out: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    fixed = ("capture", "--planner", "fixed", "--runtime", "fork", "--repeats", "1")
    here = Path(sys.executable)
    return pipeline(*fixed, "--out", str(out), *arguments, python=here, **variables)


def files_in(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_a_generation_is_written_with_exactly_the_given_imports(tmp_path: Path) -> None:
    out = tmp_path / "generation"
    done = capture(out, "--imports", "six, threadpoolctl", "--imports", "dateutil", "--with-empty")
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "done, about" not in line]
    assert all("network" in line for line in told), done.stderr
    assert files_in(out) == {
        "manifest.json",
        "catalogue.json",
        "checkpoints/checkpoint_0/meta.json",
        "checkpoints/checkpoint_1/meta.json",
        "checkpoints/checkpoint_2/meta.json",
    }
    assert [entry.name for entry in tmp_path.iterdir()] == ["generation"]

    manifest = load_manifest((out / "manifest.json").read_bytes())
    data = (out / "catalogue.json").read_bytes()
    catalogue = load_catalogue(data)
    assert manifest.catalogue_sha256 == hashlib.sha256(data).hexdigest()
    assert manifest.sealed().generation == manifest.generation
    assert (manifest.runtime, manifest.flavor, manifest.protocol) == ("fork", "cpu", 3)
    assert min(manifest.startup_s.cold, manifest.startup_s.restore) > 0
    metas = [
        load_meta((out / "checkpoints" / one.id / "meta.json").read_bytes())
        for one in catalogue.checkpoints
    ]
    said = sum(
        catalogue.items[name].load_time for one in catalogue.checkpoints for name in one.items
    )
    took = sum(meta.import_s for meta in metas)
    assert manifest.startup_s.import_factor == pytest.approx(took / said, abs=1e-3)
    assert [one.imports for one in manifest.checkpoints] == [
        (),
        ("six", "threadpoolctl"),
        ("dateutil",),
    ]
    assert [one.items for one in catalogue.checkpoints] == [
        (),
        ("six", "threadpoolctl"),
        ("dateutil",),
    ]
    assert catalogue.checkpoints[1].size_mb == pytest.approx(
        catalogue.items["six"].size_mb + catalogue.items["threadpoolctl"].size_mb
    )
    assert catalogue.items["dateutil"].distribution == "python-dateutil"
    meta = load_meta((out / "checkpoints/checkpoint_2/meta.json").read_bytes())
    assert meta.imports == ("dateutil",)
    assert meta.restore_s is not None
    assert list(meta.distributions) == ["python-dateutil"]

    assert "checkpoint_2" in done.stdout
    assert "alpha in s/MB: planned 0.002000, measured" in done.stdout
    assert "planned is kept as the price of memory" in done.stdout
    assert f"generation {manifest.generation} is in {out}" in done.stdout
    assert f"next: readie up --generations {out}" in done.stdout


def test_variables_read_while_importing_are_recorded(tmp_path: Path) -> None:
    out = tmp_path / "generation"
    assert capture(out, "--imports", "joblib").returncode == 0
    manifest = load_manifest((out / "manifest.json").read_bytes())
    assert "JOBLIB_MULTIPROCESSING" in manifest.checkpoints[0].import_environment


def test_a_count_of_devices_that_was_cached_is_told(tmp_path: Path) -> None:
    """It is forgotten in every clone; see the sandbox tests."""
    torch = """
        import sys, types
        cuda = sys.modules["torch.cuda"] = types.ModuleType("torch.cuda")
        cuda.is_initialized = lambda: False
        cuda._cached_device_count = 0
        manual_seed = lambda seed: None
        class Generator: pass
    """
    python = interpreter_with(tmp_path / "python", {"torch": textwrap.dedent(torch)})
    fixed = ("capture", "--planner", "fixed", "--runtime", "fork", "--repeats", "1")
    out = tmp_path / "generation"
    done = pipeline(*fixed, "--imports", "torch", "--out", str(out), python=python)
    assert done.returncode == 0, done.stderr
    assert "checkpoint_1: torch has cached the number of devices" in done.stderr
    [remark] = load_meta((out / "checkpoints/checkpoint_1/meta.json").read_bytes()).gate
    assert "forgotten in every clone" in remark


def test_a_checkpoint_that_fails_is_left_out_and_named(tmp_path: Path) -> None:
    out = tmp_path / "generation"
    done = capture(out, "--imports", "no_such_module", "--imports", "six")
    assert done.returncode == 1
    assert "checkpoint_1 is left out: import of no_such_module failed" in done.stderr
    assert "1 planned checkpoint(s) are missing" in done.stderr
    manifest = load_manifest((out / "manifest.json").read_bytes())
    assert [one.id for one in manifest.checkpoints] == ["checkpoint_2"]
    assert "checkpoints/checkpoint_1/meta.json" not in files_in(out)


def test_strict_stops_at_the_first_failure_and_writes_nothing(tmp_path: Path) -> None:
    done = capture(tmp_path / "g", "--imports", "no_such_module", "--imports", "six", "--strict")
    assert done.returncode == 1
    assert "checkpoint_1: import of no_such_module failed" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_when_everything_fails_the_earlier_generation_stays(tmp_path: Path) -> None:
    out = tmp_path / "generation"
    assert capture(out, "--with-empty").returncode == 0
    before = (out / "manifest.json").read_bytes()
    done = capture(out, "--imports", "no_such_module")
    assert done.returncode == 1
    assert "no checkpoint could be captured" in done.stderr
    assert (out / "manifest.json").read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["generation"]


def test_a_new_capture_replaces_the_whole_generation(tmp_path: Path) -> None:
    out = tmp_path / "generation"
    assert capture(out, "--with-empty", "--imports", "six").returncode == 0
    assert capture(out, "--with-empty").returncode == 0
    assert not (out / "checkpoints" / "checkpoint_1").exists()


def test_a_folder_that_holds_something_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("three years of work")
    done = capture(tmp_path, "--imports", "six")
    assert done.returncode == 1
    assert "holds 'thesis.tex', which no capture wrote" in done.stderr
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--imports", "numpy;rm"], "'numpy;rm' is no module name"),
        (["--imports", ""], "'' is no module name"),
        (["--imports", "six", "--alpha", "0"], "x>0"),
        (["--imports", "six", "--flavor", "tpu"], "'tpu' is not one of"),
    ],
)
def test_a_bad_option_is_refused_before_any_work(
    tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    done = capture(tmp_path / "g", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr


def test_an_empty_plan_is_refused_with_the_remedy(tmp_path: Path) -> None:
    done = capture(tmp_path / "g")
    assert done.returncode == 1
    assert "the plan is empty; give --imports, or --with-empty" in done.stderr


def test_a_secret_of_the_environment_reaches_no_file(tmp_path: Path) -> None:
    out = tmp_path / "generation"
    done = capture(out, "--imports", "six", AWS_SECRET_ACCESS_KEY="LEAKME-7d1f")
    assert done.returncode == 0
    assert "LEAKME" not in done.stdout + done.stderr
    for name in files_in(out):
        assert b"LEAKME" not in (out / name).read_bytes()


def test_the_catalogue_has_the_six_keys(tmp_path: Path) -> None:
    out = tmp_path / "generation"
    assert capture(out, "--with-empty").returncode == 0
    assert set(json.loads((out / "catalogue.json").read_bytes())) == {
        "version",
        "flavor",
        "alpha",
        "distributions",
        "items",
        "checkpoints",
    }
