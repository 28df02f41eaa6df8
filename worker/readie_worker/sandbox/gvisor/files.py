"""Files that a restore reads: those of the image, and those the saved process had mapped.

One that changed meanwhile would give the restored process other code or other memory, without any
error: gVisor checks neither. So each is hashed when a checkpoint is adopted and looked at (size,
time, inode) before each restore.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from readie_wire.manifest import MappedFile
from readie_worker.sandbox.errors import CheckpointRefusedError
from readie_worker.sandbox.gvisor.ocispec import Bind

# What `runsc checkpoint` writes, without compression.
IMAGE_FILES = ("checkpoint.img", "pages_meta.img", "pages.img")


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


class FileRecords:
    """Finds the files of sandboxes of one root filesystem on the host, and remembers their hashes."""

    def __init__(self, root: Path, binds: Sequence[Bind]) -> None:
        self._root = root
        # The deepest first: a bind inside another's target is what the sandbox sees there.
        self._binds = sorted(binds, key=lambda bind: len(bind.target), reverse=True)
        self._hashes: dict[Seen, str] = {}

    def record_mapped(self, paths: Iterable[str]) -> list[MappedFile]:
        """Hash what the process in the sandbox had mapped; what is no file of the host is left out."""
        found = [(path, self._source(path)) for path in sorted(set(paths))]
        return [self._record(path, source) for path, source in found if source.is_file()]

    def record_image(self, folder: Path) -> list[MappedFile]:
        return [self._record(name, folder / name) for name in IMAGE_FILES]

    def verify_mapped(self, recorded: Iterable[MappedFile]) -> list[Seen]:
        """All files as they are, every hash right. Raises `CheckpointRefusedError`."""
        return [self._verify(file, self._source(file.path)) for file in recorded]

    def verify_image(self, folder: Path, recorded: Iterable[MappedFile]) -> list[Seen]:
        """The same of the image. Its files' names are ours, whatever the record says."""
        hashes = {file.path: file for file in recorded}
        if missing := [name for name in IMAGE_FILES if name not in hashes]:
            raise CheckpointRefusedError(f"its record does not tell the hash of {missing[0]}")
        return [self._verify(hashes[name], folder / name) for name in IMAGE_FILES]

    def _record(self, path: str, source: Path) -> MappedFile:
        seen = Seen.now(source)
        return MappedFile(path, seen.size, self._hash(seen))

    def _verify(self, file: MappedFile, source: Path) -> Seen:
        try:
            seen = Seen.now(source)
            unchanged = seen.size == file.size and self._hash(seen) == file.sha256
        except OSError as error:
            raise CheckpointRefusedError(f"{file.path}, which it needs, is gone") from error
        if not unchanged:
            raise CheckpointRefusedError(f"{file.path}, which it needs, has changed since capture")
        return seen

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
