import json
from pathlib import Path
from platform import python_version
from typing import Any

import pytest

from readie_worker.errors import GenerationError
from readie_worker.generations import Machine, find_manifest, read_generation, signature
from support.generations import EMPTY, write_generation

HERE = Machine("cpu", "fork", python_version())


def test_every_checkpoint_of_a_fitting_generation_is_usable(tmp_path: Path) -> None:
    manifest = write_generation(tmp_path, {EMPTY: [], "checkpoint_1": ["json", "decimal"]})
    generation = read_generation(tmp_path, HERE)
    assert generation.id == manifest.generation
    assert list(generation.usable) == [EMPTY, "checkpoint_1"]
    assert not generation.refused
    checkpoint = generation.usable["checkpoint_1"]
    assert checkpoint.key == f"{manifest.generation}/checkpoint_1"
    assert checkpoint.imports == ("json", "decimal")
    assert checkpoint.meta["id"] == "checkpoint_1"


def test_the_manifest_is_that_of_the_folder_or_of_its_flavor(tmp_path: Path) -> None:
    assert find_manifest(tmp_path, "cpu") is None
    write_generation(tmp_path / "cpu", {EMPTY: []})
    assert find_manifest(tmp_path, "cpu") == tmp_path / "cpu" / "manifest.json"
    assert find_manifest(tmp_path, "gpu") is None
    write_generation(tmp_path, {EMPTY: []})
    assert find_manifest(tmp_path, "cpu") == tmp_path / "manifest.json"


def test_a_manifest_that_was_replaced_has_another_signature(tmp_path: Path) -> None:
    assert signature(tmp_path, "cpu") is None
    write_generation(tmp_path, {EMPTY: []})
    before = signature(tmp_path, "cpu")
    assert before == signature(tmp_path, "cpu")
    write_generation(tmp_path, {EMPTY: []})
    assert signature(tmp_path, "cpu") != before


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"flavor": "gpu"}, "is for gpu workers, this one is a cpu worker"),
        ({"protocol": 2}, "executor protocol 2; this worker speaks 3"),
        ({"catalogue_sha256": "0" * 64}, "is not the catalogue that manifest.json names"),
    ],
)
def test_a_generation_that_does_not_fit_is_refused_with_the_reason(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    write_generation(tmp_path, {EMPTY: []}, **changes)
    with pytest.raises(GenerationError, match=reason):
        read_generation(tmp_path, HERE)


@pytest.mark.parametrize(
    ("changes", "machine", "reason"),
    [
        (
            {"python": "3.99.1"},
            HERE,
            rf"captured with Python 3.99, this worker runs {python_version()[:4]}",
        ),
        (
            {"runtime": "gvisor", "python": "3.11.99"},
            Machine("cpu", "gvisor", "3.11.7"),
            "captured with Python 3.11.99, this worker runs 3.11.7",
        ),
        (
            {},
            Machine("cpu", "gvisor", python_version()),
            "captured for fork, this worker runs gvisor",
        ),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_with_the_reason(
    tmp_path: Path, changes: dict[str, Any], machine: Machine, reason: str
) -> None:
    write_generation(tmp_path, {EMPTY: []}, **changes)
    generation = read_generation(tmp_path, machine)
    assert not generation.usable
    assert generation.refused[EMPTY].reason.startswith(reason)


def test_another_patch_version_is_accepted_when_compatibility_is_not_strict(
    tmp_path: Path,
) -> None:
    write_generation(tmp_path, {EMPTY: []}, runtime="gvisor", python="3.11.99")
    machine = Machine("cpu", "gvisor", "3.11.7", strict=False)
    assert list(read_generation(tmp_path, machine).usable) == [EMPTY]


def test_a_fork_worker_serves_what_was_captured_for_gvisor(tmp_path: Path) -> None:
    write_generation(tmp_path, {EMPTY: []}, runtime="gvisor")
    assert list(read_generation(tmp_path, HERE).usable) == [EMPTY]


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"version": 99})])
def test_a_checkpoint_whose_meta_cannot_be_read_is_left_out_alone(
    tmp_path: Path, text: str
) -> None:
    write_generation(tmp_path, {EMPTY: [], "checkpoint_1": ["json"]})
    (tmp_path / "checkpoints" / "checkpoint_1" / "meta.json").write_text(text)
    generation = read_generation(tmp_path, HERE)
    assert list(generation.usable) == [EMPTY]
    assert "meta.json" in generation.refused["checkpoint_1"].reason


def test_a_checkpoint_id_never_climbs_out_of_its_folder(tmp_path: Path) -> None:
    write_generation(tmp_path, {EMPTY: []})
    path = tmp_path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["checkpoints"][0]["id"] = "../../etc"
    path.write_text(json.dumps(manifest))
    generation = read_generation(tmp_path, HERE)
    assert not generation.usable
    assert "not valid" in generation.refused["../../etc"].reason


@pytest.mark.parametrize("name", ["manifest.json", "catalogue.json"])
def test_a_file_that_is_cut_short_refuses_the_generation(tmp_path: Path, name: str) -> None:
    write_generation(tmp_path, {EMPTY: []})
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(GenerationError, match=name):
        read_generation(tmp_path, HERE)
