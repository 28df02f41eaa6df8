"""Which builds of runsc are refused by name."""

import stat
from pathlib import Path

import pytest

from readie_worker.sandbox.gvisor.builds import RunscBuild, UnusableBinaryError, identify


def build(version: str, go: str) -> RunscBuild:
    return RunscBuild(Path("/usr/bin/runsc"), version, go, sha256="")


def test_the_release_that_knows_only_older_go_is_refused_when_built_with_a_newer_one() -> None:
    refusal = build("0.0~20240729.0", "go1.26.2").refusal()

    assert refusal is not None
    assert "go1.26.2" in refusal
    assert "infra/gvisor/install" in refusal


@pytest.mark.parametrize(
    ("version", "go"),
    [
        ("0.0~20240729.0", "go1.24.4"),
        ("release-20260413.0", "go1.26.2"),
        ("0.0~20240729.0", ""),
        ("of-today", "go1.24.4"),
    ],
)
def test_nothing_is_known_against_other_builds(version: str, go: str) -> None:
    assert build(version, go).refusal() is None


def test_a_release_from_before_systrap_is_refused() -> None:
    refusal = build("0.0~20221219.0", "go1.19.8").refusal()

    assert refusal is not None
    assert "older than" in refusal


def test_a_binary_names_its_version_and_its_compiler(tmp_path: Path) -> None:
    binary = tmp_path / "runsc"
    information = b"\xff Go buildinf:\x08\x02" + bytes(16) + b"\x08go1.24.4" + b"\x03abc"
    binary.write_bytes(b"#!/bin/sh\necho runsc version 0.0~20240729.0\nexit\n" + information)
    binary.chmod(stat.S_IRWXU)

    found = identify(binary)

    assert (found.version, found.go, found.release) == ("0.0~20240729.0", "go1.24.4", 20240729)


def test_a_file_that_is_no_runsc_is_said_to_be_none(tmp_path: Path) -> None:
    binary = tmp_path / "runsc"
    binary.write_text("#!/bin/sh\necho something else\n")
    binary.chmod(stat.S_IRWXU)

    with pytest.raises(UnusableBinaryError, match="does not name its version"):
        identify(binary)


def test_the_real_runsc_is_identified(runsc: Path) -> None:
    found = identify(runsc)

    assert found.refusal() is None
    assert found.go.startswith("go1.")
