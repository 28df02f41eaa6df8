"""Files that a checkpoint's process had mapped: a restore maps them again, by path.

One that changed meanwhile would give the restored process other code under its feet, so each is
hashed when a checkpoint is adopted and looked at (size, time, inode) before each restore.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from readie_wire.manifest import MappedFile
from readie_worker.sandbox.errors import CheckpointRefusedError
from readie_worker.sandbox.gvisor.ocispec import Bind


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as it was when its hash was right. ``when`` in nanoseconds."""

    path: Path
    size: int
    when: int
    inode: int

    @classmethod
    def now(cls, path: Path) -> "Seen":
        found = path.stat()
        return cls(path, found.st_size, found.st_mtime_ns, found.st_ino)


class MappedFiles:
    """Finds the files of sandboxes of one root filesystem on the host, and remembers their hashes."""

    def __init__(self, root: Path, binds: Sequence[Bind]) -> None:
        self._root = root
        # The deepest first: a bind inside another's target is what the sandbox sees there.
        self._binds = sorted(binds, key=lambda bind: len(bind.target), reverse=True)
        self._hashes: dict[Seen, str] = {}

    def record(self, paths: Iterable[str]) -> list[MappedFile]:
        """Hash what the process in the sandbox had mapped; what is no file of the host is left out."""
        recorded = []
        for path in sorted(set(paths)):
            source = self._source(path)
            if source.is_file():
                seen = Seen.now(source)
                recorded.append(MappedFile(path, seen.size, self._hash(seen)))
        return recorded

    def verify(self, recorded: Iterable[MappedFile]) -> list[Seen]:
        """All files as they are, every hash right. Raises `CheckpointRefusedError`."""
        verified = []
        for file in recorded:
            try:
                seen = Seen.now(self._source(file.path))
                unchanged = seen.size == file.size and self._hash(seen) == file.sha256
            except OSError as error:
                raise CheckpointRefusedError(f"{file.path}, which it maps, is gone") from error
            if not unchanged:
                raise CheckpointRefusedError(f"{file.path}, which it maps, has changed")
            verified.append(seen)
        return verified

    def _hash(self, seen: Seen) -> str:
        if seen not in self._hashes:
            with seen.path.open("rb") as file:
                self._hashes[seen] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._hashes[seen]

    def _source(self, path: str) -> Path:
        inside = Path(path)
        for bind in self._binds:
            if inside.is_relative_to(bind.target):
                return bind.source / inside.relative_to(bind.target)
        return self._root / path.lstrip("/")


def changed(files: Iterable[Seen]) -> Path | None:
    """The first of the files that is not as it was seen; takes a microsecond or two for each."""
    for seen in files:
        try:
            if Seen.now(seen.path) != seen:
                return seen.path
        except OSError:
            return seen.path
    return None
