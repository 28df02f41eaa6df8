"""Capture in real gVisor: images on disk, restored and timed; alpha fitted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from readie_wire.catalogue import load_catalogue
from readie_wire.manifest import load_manifest, load_meta
from readie_worker.sandbox.gvisor.compatibility import cpu_features
from support.requirements import require_part


@pytest.fixture(autouse=True)
def _needs_gvisor() -> None:
    root = os.geteuid() == 0
    require_part("runsc", root and shutil.which("runsc"), "infra/gvisor/install, as root")


@pytest.mark.timeout(600)
def test_checkpoints_are_saved_restored_and_priced(tmp_path: Path) -> None:
    out = tmp_path / "generation"
    sets = ("--imports", "numpy", "--imports", "no_such_module", "--imports", "six")
    command = f"capture --planner fixed --with-empty --runtime gvisor --repeats 1 --out {out}"
    done = subprocess.run(
        [sys.executable, "-m", "readie_pipeline", *command.split(), *sets],
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
        env={**os.environ, "AWS_SECRET_ACCESS_KEY": "LEAKME-91c2"},
    )
    assert done.returncode == 1
    assert "checkpoint_2 is left out: import of no_such_module failed" in done.stderr

    manifest = load_manifest((out / "manifest.json").read_bytes())
    assert [one.id for one in manifest.checkpoints] == [
        "checkpoint_0",
        "checkpoint_1",
        "checkpoint_3",
    ]
    assert manifest.runtime == "gvisor"
    assert len(manifest.rootfs_digest) == 64
    assert {"version", "fingerprint", "runsc_sha256", "mounts", "overlay", "network"} <= set(
        manifest.gvisor
    )
    assert manifest.startup_s.cold > 0

    meta = load_meta((out / "checkpoints/checkpoint_1/meta.json").read_bytes())
    assert meta.fingerprint == manifest.gvisor["fingerprint"]
    assert meta.gvisor_version == manifest.gvisor["version"]
    assert meta.rootfs_digest == manifest.rootfs_digest
    assert set(meta.cpu_features) == cpu_features(), "a worker compares them with its own"
    assert meta.restore_s is not None
    assert any("numpy" in file.path for file in meta.mapped_files)
    folder = out / "checkpoints/checkpoint_1"
    assert meta.bytes_on_disk == sum(
        (folder / file.path).stat().st_size for file in meta.image_files
    )

    alpha = load_catalogue((out / "catalogue.json").read_bytes()).alpha
    assert alpha == round(alpha, 6) > 0
    assert "alpha in s/MB: planned 0.002000, measured" in done.stdout
    for file in out.rglob("*"):
        assert file.is_dir() or b"LEAKME" not in file.read_bytes()
