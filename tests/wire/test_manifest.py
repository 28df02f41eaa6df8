"""Manifest and meta: what is written reads back, and a bad file is refused by its place."""

import json
from dataclasses import replace
from typing import Any

import pytest

from readie_wire.manifest import (
    CheckpointMeta,
    Manifest,
    ManifestCheckpoint,
    ManifestError,
    MappedFile,
    StartupSeconds,
    dump_manifest,
    dump_meta,
    load_manifest,
    load_meta,
)

MANIFEST = Manifest(
    flavor="cpu",
    runtime="fork",
    created="20260102T030405",
    python="3.11.7",
    catalogue_sha256="ab" * 32,
    checkpoints=(ManifestCheckpoint("checkpoint_1", ("numpy",), 60.5, ("OMP_NUM_THREADS",)),),
    executor_command=("python", "-m", "readie_executor"),
    startup_s=StartupSeconds(cold=0.2, restore=0.001, import_factor=1.5, per_mb=0.00025),
    planned_alpha=0.002,
).sealed()

META = CheckpointMeta(
    id="checkpoint_1",
    runtime="gvisor",
    imports=("numpy",),
    restore_s=0.25,
    distributions={"numpy": "2.0.2"},
    mapped_files=(MappedFile("/usr/lib/libm.so.6", 12, "cd" * 32),),
    gate=("numpy: 1 thread",),
)


def test_a_manifest_reads_back_as_it_was_written() -> None:
    assert load_manifest(dump_manifest(MANIFEST)) == MANIFEST


def test_a_meta_file_reads_back_as_it_was_written() -> None:
    assert load_meta(dump_meta(META)) == META
    assert load_meta(dump_meta(replace(META, restore_s=None))).restore_s is None


def test_a_generation_is_named_after_its_time_and_content() -> None:
    assert MANIFEST.generation.startswith("20260102T030405-")
    assert MANIFEST.sealed() == MANIFEST
    other = replace(MANIFEST, catalogue_sha256="ef" * 32).sealed()
    assert other.generation != MANIFEST.generation
    assert len(other.generation) == len("20260102T030405-") + 8


def test_a_reloaded_manifest_seals_to_the_same_name() -> None:
    assert load_manifest(dump_manifest(MANIFEST)).sealed().generation == MANIFEST.generation


def test_a_manifest_of_before_predictions_were_fitted_is_read() -> None:
    value = json.loads(dump_manifest(MANIFEST))
    del value["startup_s"]["per_mb"], value["startup_s"]["import_factor"]
    assert load_manifest(json.dumps(value).encode()).startup_s == StartupSeconds(0.2, 0.001)


def test_a_checkpoint_is_found_by_its_id() -> None:
    found = MANIFEST.checkpoint("checkpoint_1")
    assert found is not None
    assert found.import_environment == ("OMP_NUM_THREADS",)
    assert MANIFEST.checkpoint("checkpoint_9") is None


def test_keys_of_a_newer_pipeline_are_ignored() -> None:
    value = json.loads(dump_manifest(MANIFEST)) | {"mood": "good"}
    assert load_manifest(json.dumps(value).encode()) == MANIFEST


@pytest.mark.parametrize(
    ("key", "new", "complaint"),
    [
        ("version", 9, "manifest has version 9; this build reads 1"),
        ("runtime", "docker", "manifest.runtime is 'docker'; choose one of fork, gvisor"),
        ("flavor", None, "manifest.flavor must be a string, not None"),
        ("protocol", "3", "manifest.protocol must be a whole number"),
        ("checkpoints", {}, "manifest.checkpoints must be a list"),
        ("checkpoints", [{"imports": []}], "manifest.checkpoints[0].id must be a string"),
        ("checkpoints", [{"id": "a", "imports": "x"}], "checkpoints[0].imports must be a list"),
        ("startup_s", {"cold": -1}, "manifest.startup_s.cold must be a number, 0 or more"),
        ("gvisor", [], "manifest.gvisor must be an object"),
    ],
)
def test_a_bad_manifest_is_refused_by_its_place(key: str, new: Any, complaint: str) -> None:
    value = json.loads(dump_manifest(MANIFEST)) | {key: new}
    with pytest.raises(ManifestError) as caught:
        load_manifest(json.dumps(value).encode())
    assert complaint in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff"])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(ManifestError):
        load_manifest(data)
    with pytest.raises(ManifestError):
        load_meta(data)
