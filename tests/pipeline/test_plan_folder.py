"""What a plan's folder holds for those who build from it."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from readie_pipeline.commands.ground import tell_difference
from readie_pipeline.console import Terminal
from readie_pipeline.errors import PlanError
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.plan.plan import Plan
from readie_pipeline.plan_folder import PlanFolder, SpecFingerprint

EMPTY = Plan("fixed", "cpu", 0.002, ())


@pytest.fixture
def folder(tmp_path: Path) -> PlanFolder:
    made = PlanFolder(tmp_path / "plan")
    made.write(EMPTY, Metadata("3.11", {}))
    return made


@pytest.mark.skipif(sys.platform != "linux", reason="gVisor runs on Linux")
def test_a_plan_says_for_which_sandbox_it_was_made(
    folder: PlanFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    here = SpecFingerprint.here()
    assert here is not None
    assert folder.read() == EMPTY
    assert folder.read_spec() == here == SpecFingerprint.here()
    tell_difference(Terminal(), folder)
    assert capsys.readouterr().err == ""
    for field, words in (
        ("rootfs_digest", "since the plan was made, the root filesystem has changed"),
        ("fingerprint", "since the plan was made, the sandbox has another shape"),
    ):
        other = dataclasses.replace(here, **{field: "0"})
        folder.spec.write_text(json.dumps(dataclasses.asdict(other)))
        tell_difference(Terminal(), folder)
        assert words in capsys.readouterr().err


def test_a_plan_of_another_machine_needs_no_fingerprint(folder: PlanFolder) -> None:
    folder.spec.unlink()
    assert folder.read_spec() is None
    tell_difference(Terminal(), folder)


@pytest.mark.parametrize("text", ["", "[]", '{"fingerprint": "1"}'])
def test_a_broken_fingerprint_is_named(folder: PlanFolder, text: str) -> None:
    folder.spec.write_text(text)
    with pytest.raises(PlanError, match=r"spec-fingerprint\.json cannot be read"):
        folder.read_spec()


def test_a_list_of_an_earlier_root_filesystem_does_not_stay(
    folder: PlanFolder, tmp_path: Path
) -> None:
    rootfs = tmp_path / "rootfs"
    (rootfs / "etc").mkdir(parents=True)
    listed = rootfs / "etc" / "readie-rootfs-skipped.txt"
    listed.write_text("# could not be installed\nTorch==2.9\n\nleft.pad\n")
    assert folder.take_skipped(rootfs) == ("torch", "left-pad")
    assert folder.skipped.exists()
    listed.unlink()
    assert folder.take_skipped(rootfs) == ()
    assert not folder.skipped.exists()
