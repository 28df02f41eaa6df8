"""The installer, from a release that lies in a folder: no test fetches anything."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

INSTALL = Path(__file__).parents[2] / "infra" / "gvisor" / "install"


def install(prefix: Path, release: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [INSTALL, "--prefix", prefix, "--release-url", f"file://{release}", *options],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=110,
    )


@pytest.fixture
def release(runsc: Path, tmp_path: Path) -> Path:
    """The machine's runsc laid out as gVisor lays out a release."""
    folder = tmp_path / "release"
    folder.mkdir()
    shutil.copy(runsc, folder / "runsc")
    write_checksum(folder)
    return folder


def write_checksum(folder: Path) -> None:
    digest = hashlib.sha512((folder / "runsc").read_bytes()).hexdigest()
    (folder / "runsc.sha512").write_text(f"{digest}  runsc\n")


def test_a_good_release_is_installed_once(release: Path, tmp_path: Path) -> None:
    first = install(tmp_path / "prefix", release)
    shutil.rmtree(release)
    second = install(tmp_path / "prefix", release)

    assert first.returncode == 0, first.stderr
    assert (tmp_path / "prefix" / "bin" / "runsc").stat().st_mode & 0o777 == 0o755
    assert second.returncode == 0, second.stderr
    assert "is there and works" in second.stderr


def test_a_bad_build_is_refused_by_name_and_changes_nothing(release: Path, tmp_path: Path) -> None:
    (release / "runsc").write_text("#!/bin/sh\necho runsc version 0.0~20221219.0\n")
    write_checksum(release)

    done = install(tmp_path / "prefix", release)

    assert done.returncode == 1
    assert "runsc 0.0~20221219.0 is older than" in done.stderr
    assert not (tmp_path / "prefix" / "bin" / "runsc").exists()


def test_a_release_with_another_checksum_is_refused(release: Path, tmp_path: Path) -> None:
    with (release / "runsc").open("ab") as file:
        file.write(b"\0")

    done = install(tmp_path / "prefix", release)

    assert done.returncode == 1
    assert "checksum" in done.stderr


def test_an_image_is_built_without_starting_a_sandbox_and_without_a_bad_build(
    release: Path, tmp_path: Path
) -> None:
    good = install(tmp_path / "prefix", release, "--untried")
    (release / "runsc").write_text("#!/bin/sh\necho runsc version 0.0~20221219.0\n")
    write_checksum(release)
    bad = install(tmp_path / "other", release, "--untried")

    assert good.returncode == 0, good.stderr
    assert "nothing is known against it" in good.stderr
    assert (tmp_path / "prefix" / "bin" / "runsc").is_file()
    assert bad.returncode == 1
    assert "runsc 0.0~20221219.0 is older than" in bad.stderr
    assert not (tmp_path / "other" / "bin" / "runsc").exists()
