"""Folders that several owners make beside each other, and that nobody but their owner removes."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from readie_worker.sandbox.gvisor.folder import PREFIX, RuntimeFolder
from readie_worker.sandbox.owned_folders import LOCK, OwnedFolder


@contextmanager
def removed_by_another_owner(parent: Path) -> Iterator[None]:
    """What is made and not yet locked looks like an orphan to whoever comes just then."""
    OwnedFolder(parent, PREFIX).remove()
    yield


@contextmanager
def about_to_be_removed(parent: Path) -> Iterator[None]:
    [folder] = parent.iterdir()
    with (folder / LOCK).open() as remover:
        fcntl.flock(remover, fcntl.LOCK_EX)
        yield


def own_folder(parent: Path) -> OwnedFolder:
    return OwnedFolder(parent, PREFIX)


@pytest.mark.parametrize("make", [own_folder, RuntimeFolder])
@pytest.mark.parametrize("happening", [removed_by_another_owner, about_to_be_removed])
def test_a_folder_that_is_taken_for_an_orphan_while_it_is_made_is_made_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    happening: Callable[[Path], AbstractContextManager[None]],
    make: Callable[[Path], OwnedFolder | RuntimeFolder],
) -> None:
    lock = fcntl.flock

    def late(descriptor: int, how: int) -> None:
        monkeypatch.undo()
        with happening(tmp_path):
            lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    folder = make(tmp_path)

    with (folder.path / LOCK).open() as other, pytest.raises(BlockingIOError):
        lock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    folder.remove()
    assert not folder.path.exists()
