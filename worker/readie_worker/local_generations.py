"""The generations of a bucket on this machine's disk, which several workers may share."""

import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from readie_infra.flushing import flush
from readie_wire.keys import InvalidIdError, check_id
from readie_wire.publication import (
    CATALOGUE_NAME,
    CHECKPOINTS_FOLDER,
    MANIFEST_NAME,
    PackingList,
    PublicationError,
    PublishedFile,
)
from readie_worker.errors import ConfigurationError

# No published name begins with a dot, so none of these can be one.
_LIST = ".packing-list.json"
_LIST_DRAFT = ".packing-list.json.part"
_ARRIVING = ".arriving"
_IN_USE = ".in-use"
_LEADER = ".leader"
_CURRENT = "current"


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint of a generation that was begun here: its bytes on a disk, and whether it is on this."""

    size: int
    here: bool


class LocalGenerations:
    """Folders ``{root}/{generation}``, and a link ``current`` to the one that workers serve.

    A checkpoint appears in ``{generation}/checkpoints/`` when it is complete. One worker leads: it
    alone writes here. Each worker keeps a lock on what it uses, so that the leader leaves it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.current = root / _CURRENT
        self._leader: int | None = None
        self._locks: dict[str, int] = {}
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"{root} cannot be made: {error.strerror}; give a READIE_DATA_DIR to write to"
            ) from error

    def lead(self) -> bool:
        """Whether this worker is the one that writes here, from now until it ends."""
        if self._leader is None:
            self._leader = _lock(self.root / _LEADER, fcntl.LOCK_EX)
        return self._leader is not None

    def hold(self, generations: Collection[str]) -> None:
        """Keep these, and no others, from being removed by the leader."""
        for generation in self._locks.keys() - set(generations):
            released = self._locks.pop(generation)
            with suppress(OSError):
                os.utime(released)  # when it was used last
            os.close(released)
        for generation in set(generations) - self._locks.keys():
            # One that is not from here, or is gone by now, or a disk on which nothing can be made:
            # its files are then used for as long as they are there.
            with suppress(OSError):
                lock = _lock(self.root / generation / _IN_USE, fcntl.LOCK_SH)
                if lock is not None:
                    self._locks[generation] = lock

    def close(self) -> None:
        self.hold(())
        if self._leader is not None:
            os.close(self._leader)
            self._leader = None

    @property
    def exposed(self) -> str | None:
        """The generation that ``current`` leads to."""
        try:
            return self.current.readlink().name
        except OSError:
            return None

    def expose(self, generation: str) -> None:
        """Let ``current`` lead to a generation, without a moment in between."""
        draft = self.root / f".{secrets.token_hex(4)}.link"
        draft.symlink_to(generation)
        draft.replace(self.current)

    def hide(self) -> None:
        self.current.unlink(missing_ok=True)

    def begin(self, listed: PackingList) -> Path:
        """The folder of a generation, with room for what will arrive."""
        place = self.root / listed.generation
        for folder in (CHECKPOINTS_FOLDER, _ARRIVING):
            (place / folder).mkdir(parents=True, exist_ok=True)
        if self.packing_list(listed.generation) != listed:
            draft = place / _LIST_DRAFT
            draft.write_bytes(listed.dump())
            flush(draft)
            draft.replace(place / _LIST)
        return place

    def target(self, listed: PackingList, file: PublishedFile) -> Path:
        """Where a file is to be put; its folder exists."""
        place = self.root / listed.generation
        if file.checkpoint is None:
            return place / file.name
        folder = place / _ARRIVING / file.checkpoint
        folder.mkdir(exist_ok=True)
        return folder / file.name.rpartition("/")[2]

    def has(self, listed: PackingList, checkpoint: str) -> bool:
        return (self.root / listed.generation / CHECKPOINTS_FOLDER / checkpoint).is_dir()

    def admit(self, listed: PackingList, checkpoint: str) -> None:
        """All files of a checkpoint are at their targets: let it appear."""
        place = self.root / listed.generation
        (place / _ARRIVING / checkpoint).replace(place / CHECKPOINTS_FOLDER / checkpoint)

    def packing_list(self, generation: str) -> PackingList | None:
        """What belongs to a generation on this disk; None when that cannot be told."""
        try:
            return PackingList.load((self.root / generation / _LIST).read_bytes())
        except (OSError, PublicationError):
            return None

    def drop_what_is_damaged(self, generation: str) -> bool:
        """Compare every file with its hash, take what is wrong away; whether the rest can be used."""
        listed = self.packing_list(generation)
        if listed is None:
            return False
        place = self.root / generation
        for checkpoint in {file.checkpoint for file in listed.files} - {None}:
            files = [file for file in listed.files if file.checkpoint == checkpoint]
            folder = place / CHECKPOINTS_FOLDER / str(checkpoint)
            if folder.is_dir() and not all(is_right(place / file.name, file) for file in files):
                shutil.rmtree(folder)
        return all(
            is_right(place / name, listed.file(name)) for name in (MANIFEST_NAME, CATALOGUE_NAME)
        )

    def known_files(self) -> dict[str, Path]:
        """Files of checkpoints that are complete here, by hash; to be checked before use."""
        found: dict[str, Path] = {}
        for generation in self.generations():
            listed = self.packing_list(generation)
            for file in listed.files if listed else ():
                path = self.root / generation / file.name
                if file.checkpoint and path.is_file():
                    found[file.sha256] = path
        return found

    def stored(self) -> Mapping[str, Mapping[str, Stored]]:
        """Every checkpoint of every generation on this disk, arrived or not; the oldest first."""
        found: dict[str, Mapping[str, Stored]] = {}
        for generation in self.generations():
            if (listed := self.packing_list(generation)) is not None:
                found[generation] = {
                    name: Stored(size, self.has(listed, name))
                    for name, size in listed.checkpoint_sizes.items()
                }
        return found

    def generations(self) -> Sequence[str]:
        """Those on this disk, complete or not, the oldest first."""
        return sorted(entry.name for entry in self.root.iterdir() if _is_generation(entry))

    def removable(self, kept: Collection[str]) -> Iterator[str]:
        """Those that no worker uses, the least recently used first, except the exposed and ``kept``."""
        for generation in sorted(self.generations(), key=self._used_at):
            if generation in kept or generation == self.exposed:
                continue
            lock = _lock(self.root / generation / _IN_USE, fcntl.LOCK_EX)
            if lock is not None:
                os.close(lock)
                yield generation

    def _used_at(self, generation: str) -> float:
        """Seconds since 1970; 0 for one that no worker has ever used."""
        try:
            return (self.root / generation / _IN_USE).stat().st_mtime
        except OSError:
            return 0.0

    def remove(self, generation: str) -> None:
        shutil.rmtree(self.root / generation, ignore_errors=True)

    def used_bytes(self) -> int:
        """On the disk; a file that two generations share counts once."""
        inodes: dict[int, int] = {}
        for path in self.root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                status = path.stat()
                inodes[status.st_ino] = status.st_size
        return sum(inodes.values())


def is_right(path: Path, file: PublishedFile) -> bool:
    """Whether the bytes at ``path`` are those that were published."""
    try:
        with path.open("rb") as opened:
            if os.fstat(opened.fileno()).st_size != file.size:
                return False
            return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256
    except OSError:
        return False


def _is_generation(entry: Path) -> bool:
    try:
        check_id(entry.name)
    except InvalidIdError:
        return False
    return entry.is_dir() and not entry.is_symlink()


def _lock(path: Path, kind: int) -> int | None:
    """A descriptor that holds the lock until it is closed, by this process's end at the latest."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
