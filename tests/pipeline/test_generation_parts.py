"""The parts of writing a generation: the fitted line, the catalogue's items, the folder swap."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readie_pipeline.capture.cataloguing import make_catalogue, provided
from readie_pipeline.capture.conditions import Conditions
from readie_pipeline.capture.digests import executor_digest
from readie_pipeline.capture.fitting import fit_alpha
from readie_pipeline.capture.preflight import require_machine
from readie_pipeline.capture.scratch import image_folder, scratch_folder
from readie_pipeline.capture.staging import staged, write_file
from readie_pipeline.errors import CaptureError, OutputError
from readie_pipeline.measure.metadata import Measurement, Metadata
from readie_pipeline.plan.plan import PlanEntry
from readie_wire.catalogue import ResourceType, load_catalogue
from readie_wire.catalogue import dump_catalogue as dump
from readie_worker.sandbox.owned_folders import LOCK


def test_alpha_is_the_slope_and_the_fixed_cost_does_not_distort_it() -> None:
    fit = fit_alpha([0, 100, 200], [0.3, 0.5, 0.7])
    assert (fit.alpha, fit.reason) == (0.002, "")
    assert fit.floor_s == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("sizes", "times", "reason"),
    [
        ([], [], "fewer than two sizes"),
        ([60.0], [0.3], "fewer than two sizes"),
        ([60.0, 60.0], [0.3, 0.5], "fewer than two sizes"),
        ([0.0, 60.0], [0.5, 0.3], "larger checkpoints were not slower"),
    ],
)
def test_alpha_is_not_made_up(sizes: list[float], times: list[float], reason: str) -> None:
    fit = fit_alpha(sizes, times)
    assert fit.alpha is None
    assert reason in fit.reason


@given(
    st.lists(
        st.tuples(st.floats(0, 5_000), st.floats(0.001, 60)), min_size=2, unique_by=lambda p: p[0]
    )
)
def test_a_fitted_alpha_is_positive_with_six_decimals(points: list[tuple[float, float]]) -> None:
    fit = fit_alpha([size for size, _ in points], [seconds for _, seconds in points])
    assert fit.floor_s >= 0
    assert fit.alpha is None or fit.alpha == round(fit.alpha, 6) > 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_told_with_the_file_and_leaves_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "meta.json"
    file.write_text("old")
    (tmp_path / ".meta.json.part").symlink_to("/dev/full")
    with pytest.raises(OutputError, match=r"cannot write .*/meta\.json: No space left on device"):
        write_file(file, b"new")
    assert file.read_text() == "old"


def metadata() -> Metadata:
    return Metadata(
        python="3.11.7",
        items={
            "numpy": Measurement(0.1, 8.0, modules=("numpy",), distribution="numpy"),
            "mine": Measurement(0.1, 1.0, modules=("mine",)),
            "gone": Measurement(0.1, 1.0, modules=("gone",), distribution="gone"),
            "model:gpt2": Measurement(3.0, 500.0, resource_type=ResourceType.MODEL),
        },
    )


def test_only_what_a_distribution_here_provides_is_priced_and_resources_always_are() -> None:
    here = provided(metadata(), {"numpy": "numpy"}, {"numpy": "2.0.2"})
    assert set(here.items) == {"numpy", "model:gpt2"}
    assert here.distributions == {"numpy": "2.0.2"}


def test_a_checkpoint_lists_what_it_was_told_and_what_it_holds() -> None:
    entries = {"checkpoint_4": PlanEntry(("numpy", "mine"))}
    here = provided(metadata(), {"numpy": "numpy"}, {"numpy": "2.0.2"})
    catalogue = make_catalogue(here, entries, flavor="cpu", alpha=0.002)
    assert load_catalogue(dump(catalogue)) == catalogue
    (one,) = catalogue.checkpoints
    assert (one.id, one.canonical, one.items) == ("checkpoint_4", ("numpy", "mine"), ("numpy",))
    assert one.size_mb == 8.0


def test_a_staged_folder_appears_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "generation"
    with staged(out) as stage:
        (stage.generation / "manifest.json").write_text("{}")
        assert not out.exists()
    assert (out / "manifest.json").read_text() == "{}"
    assert [path.name for path in out.parent.iterdir()] == ["generation"]


def test_an_error_while_staging_leaves_the_earlier_folder(tmp_path: Path) -> None:
    out = tmp_path / "generation"
    with staged(out) as stage:
        (stage.generation / "manifest.json").write_text("old")

    def is_interrupted() -> None:
        with staged(out) as stage:
            (stage.generation / "manifest.json").write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        is_interrupted()
    assert (out / "manifest.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["generation"]


def test_an_output_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for out in (file, link):
        with pytest.raises(OutputError, match="is no folder"), staged(out):
            pass


def test_an_output_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(OutputError, match="cannot write beside"), staged(file / "generation"):
        pass


def test_the_executor_has_one_digest() -> None:
    assert executor_digest() == executor_digest()
    assert len(executor_digest()) == 64


def test_conditions_name_what_differs() -> None:
    here = Conditions({"gVisor": "1", "root filesystem": "ab" * 32}, ["avx", "sse4"])
    assert here.obstacle(here) is None
    assert here.obstacle(Conditions.from_json(json.loads(json.dumps(here.to_json())))) is None
    newer = replace(here, facts={**here.facts, "gVisor": "2"})
    assert here.obstacle(newer) == "its gVisor is 1, there it is 2"
    other = replace(here, facts={**here.facts, "root filesystem": "cd" * 32})
    assert here.obstacle(other) == (
        "its root filesystem is abababababababab, there it is cdcdcdcdcdcdcdcd"
    )


def test_a_checkpoint_may_go_to_a_cpu_with_more_features_and_not_with_fewer() -> None:
    small, large = Conditions({}, ["sse4"]), Conditions({}, ["sse4", "avx512f"])
    assert small.obstacle(large) is None
    assert large.obstacle(small) == "its CPU has features that are missing there: avx512f"


def test_images_of_a_killed_capture_are_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with image_folder() as living:
        dead = living.with_name("images-of-the-dead")
        dead.mkdir()
        (dead / LOCK).touch()
        with image_folder():
            assert living.exists()
            assert not dead.exists()
    assert not living.exists()


def test_a_scratch_folder_that_somebody_else_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = scratch_folder()
    folder.chmod(0o777)
    with pytest.raises(CaptureError, match="is not this user's own folder"):
        scratch_folder()
    folder.rmdir()
    folder.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(CaptureError, match="is not this user's own folder"):
        scratch_folder()


def test_a_machine_that_gvisor_cannot_capture_on_is_named() -> None:
    require_machine("Linux", "x86_64")
    with pytest.raises(CaptureError, match=r"Linux on aarch64; .* or use --runtime fork"):
        require_machine("Linux", "aarch64")
    with pytest.raises(CaptureError, match="Darwin on x86_64"):
        require_machine("Darwin", "x86_64")
