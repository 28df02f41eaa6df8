"""What sandboxes are shown of the host can be written neither by them nor by a mistake of ours."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from readie_worker.sandbox.errors import RuntimeUnavailableError
from readie_worker.sandbox.gvisor.folder import remove_with_mounts
from readie_worker.sandbox.gvisor.mounts import mount_tmpfs, show_read_only, unmount_below


@pytest.fixture
def source(tmp_path: Path, runsc: Path) -> Iterator[Path]:
    """A folder with a file, and with another mount in it. Mounting needs root, as `runsc` does."""
    folder = tmp_path / "source"
    mount_tmpfs(folder / "inner")
    for file in (folder / "file", folder / "inner" / "file"):
        file.write_text("kept")
    yield folder
    unmount_below(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With what the list of mounts has to escape."""
    return tmp_path / "a folder with žluť"


def mounts_below(folder: Path) -> int:
    """As `mount` sees them."""
    listed = subprocess.run(
        ["findmnt", "--list", "--noheadings", "--output", "TARGET"], capture_output=True, check=True
    )
    return listed.stdout.count(os.fsencode(folder))


@pytest.mark.parametrize("name", ["file", "inner/file"])
def test_a_view_shows_everything_and_lets_nothing_be_written(
    source: Path, folder: Path, name: str
) -> None:
    show_read_only(source, folder / "view")

    shown = folder / "view" / name
    assert shown.read_text() == "kept"
    for write in (shown.unlink, shown.touch, lambda: shown.write_text("changed")):
        with pytest.raises(OSError, match="Read-only file system"):
            write()
    (source / name).write_text("changed at its place")
    assert shown.read_text() == "changed at its place"


def test_a_folder_is_removed_with_its_mounts_and_nothing_behind_them(
    source: Path, folder: Path
) -> None:
    mount_tmpfs(folder / "run")
    show_read_only(source, folder / "view")
    assert mounts_below(folder) == 3

    remove_with_mounts(folder)

    assert mounts_below(folder) == 0
    assert not folder.exists()
    assert (source / "inner" / "file").read_text() == "kept"


def test_a_folder_whose_mounts_cannot_be_taken_off_is_left_alone(
    source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show_read_only(source, folder / "view")
    (folder / "other").touch()
    with monkeypatch.context() as patch:
        patch.setattr("subprocess.run", lambda *_, **__: None)
        remove_with_mounts(folder)

    assert (folder / "other").exists()


def test_what_cannot_be_shown_is_named_with_the_remedy(folder: Path, runsc: Path) -> None:
    with pytest.raises(RuntimeUnavailableError, match=r"/missing read-only .* Linux 5\.12"):
        show_read_only(folder / "missing", folder / "view")
