"""Files of a checkpoint are hashed when it is adopted and looked at before each restore."""

from pathlib import Path

import pytest

from readie_wire.manifest import MappedFile
from readie_worker.sandbox.errors import CheckpointRefusedError
from readie_worker.sandbox.gvisor.files import FileRecords, changed
from readie_worker.sandbox.gvisor.ocispec import Bind


@pytest.fixture
def library(tmp_path: Path) -> Path:
    library = tmp_path / "host" / "lib.so"
    library.parent.mkdir()
    library.write_bytes(b"code")
    return library


@pytest.fixture
def records(tmp_path: Path, library: Path) -> FileRecords:
    (tmp_path / "root" / "etc").mkdir(parents=True)
    (tmp_path / "root" / "etc" / "ld.so.cache").write_bytes(b"cache")
    return FileRecords(tmp_path / "root", [Bind(library.parent, "/opt/inside")])


def test_files_are_found_behind_binds_and_in_the_root(records: FileRecords) -> None:
    found = records.record_mapped(["/opt/inside/lib.so", "/etc/ld.so.cache", "/memfd:x (deleted)"])

    assert [file.path for file in found] == ["/etc/ld.so.cache", "/opt/inside/lib.so"]
    assert [file.size for file in found] == [5, 4]


def test_unchanged_files_pass_and_go_on_passing(records: FileRecords) -> None:
    seen = records.verify_mapped(records.record_mapped(["/opt/inside/lib.so"]))

    assert changed(seen) is None


def test_a_file_with_other_content_refuses_the_checkpoint(
    records: FileRecords, library: Path
) -> None:
    recorded = records.record_mapped(["/opt/inside/lib.so"])
    library.write_bytes(b"c0de")

    with pytest.raises(CheckpointRefusedError, match=r"/opt/inside/lib\.so.*has changed"):
        records.verify_mapped(recorded)


def test_a_missing_file_refuses_the_checkpoint(records: FileRecords, library: Path) -> None:
    recorded = records.record_mapped(["/opt/inside/lib.so"])
    library.unlink()

    with pytest.raises(CheckpointRefusedError, match="is gone"):
        records.verify_mapped(recorded)


def test_a_file_replaced_after_adoption_is_noticed(records: FileRecords, library: Path) -> None:
    seen = records.verify_mapped(records.record_mapped(["/opt/inside/lib.so"]))
    other = library.with_name("other")
    other.write_bytes(b"code")
    other.replace(library)

    assert changed(seen) == library


def test_an_image_needs_the_hash_of_each_of_its_files(records: FileRecords, tmp_path: Path) -> None:
    for name in ("checkpoint.img", "pages_meta.img", "pages.img"):
        (tmp_path / name).write_bytes(name.encode())
    recorded = records.record_image(tmp_path)

    assert len(records.verify_image(tmp_path, recorded)) == 3
    with pytest.raises(CheckpointRefusedError, match=r"the hash of pages\.img"):
        records.verify_image(tmp_path, recorded[:2])


def test_a_record_cannot_lead_out_of_the_image(records: FileRecords, tmp_path: Path) -> None:
    with pytest.raises(CheckpointRefusedError):
        records.verify_image(tmp_path, [MappedFile("../../etc/passwd", 1, "00")])
