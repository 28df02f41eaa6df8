"""A directory as an object store: for one machine, or a file system that several share."""

import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from readie_infra.flushing import flush
from readie_infra.objects.errors import (
    ObjectConflictError,
    ObjectMissingError,
    ObjectStoreUnavailableError,
)
from readie_infra.objects.store import (
    CHUNK_BYTES,
    DOCUMENT_LIMIT_BYTES,
    Document,
    Head,
    Listed,
    check_key,
)

# No part of a key begins with a dot, so neither of these can be an object.
_PARTIAL = ".partial"
_LOCK = ".lock"


class DirectoryObjects:
    """Objects as files below ``root``, which is made when the first one is written.

    A file is flushed to disk before it is renamed into place. The tag of a version is the hash of
    its bytes; conditional replacements take turns on one lock file.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.url = root.as_uri()

    def get(self, key: str) -> Document:
        path = self._path(key)
        with _translated(key):
            if path.stat().st_size > DOCUMENT_LIMIT_BYTES:
                raise ObjectStoreUnavailableError(
                    key, f"over {DOCUMENT_LIMIT_BYTES} bytes, the limit of a document"
                )
            data = path.read_bytes()
        return Document(data, _tag(data))

    def get_changed(self, key: str, etag: str) -> Document | None:
        found = self.get(key)
        return None if found.etag == etag else found

    @contextmanager
    def stream(self, key: str, offset: int = 0) -> Iterator[Iterator[bytes]]:
        with _translated(key):
            file = self._path(key).open("rb")
        with file:
            file.seek(offset)
            yield _chunks(key, file)

    def head(self, key: str) -> Head | None:
        path = self._path(key)
        try:
            with _translated(key):
                found = path.stat()
        except ObjectMissingError:
            return None
        return Head(found.st_size, found.st_mtime)

    def put(self, key: str, source: bytes | Path) -> None:
        path = self._path(key)
        with _written(key), self._draft(path, source) as draft:
            draft.replace(path)

    def put_if_absent(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with _written(key), self._draft(path, data) as draft:
            try:
                path.hardlink_to(draft)
            except FileExistsError as error:
                raise ObjectConflictError(key, "there is one already") from error

    def put_if_match(self, key: str, data: bytes, etag: str) -> None:
        path = self._path(key)
        with _written(key), self._draft(path, data) as draft, self._lock():
            try:
                found = _tag(path.read_bytes())
            except FileNotFoundError:
                found = ""
            if found != etag:
                raise ObjectConflictError(key, "it is another version by now")
            draft.replace(path)

    def list(self, prefix: str) -> Iterator[Listed]:
        top = self._root / prefix
        with _translated(prefix):
            for folder, folders, names in os.walk(top):
                folders[:] = [name for name in folders if not name.startswith(".")]
                for name in names:
                    path = Path(folder, name)
                    if name.startswith("."):
                        continue
                    try:
                        found = path.stat()
                    except FileNotFoundError:  # deleted meanwhile
                        continue
                    key = path.relative_to(self._root).as_posix()
                    yield Listed(key, found.st_size, found.st_mtime)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with _translated(key):
            path.unlink(missing_ok=True)

    def drop_unfinished(self, prefix: str, before: float) -> int:
        """Whatever the key: a draft does not tell it."""
        dropped = 0
        with _translated(prefix):
            for draft in (self._root / _PARTIAL).glob("*"):
                with suppress(FileNotFoundError):  # it has just got its name
                    if draft.stat().st_mtime < before:
                        draft.unlink()
                        dropped += 1
        return dropped

    def _path(self, key: str) -> Path:
        return self._root.joinpath(*check_key(key).split("/"))

    @contextmanager
    def _draft(self, path: Path, source: bytes | Path) -> Iterator[Path]:
        """A flushed file with these bytes, on the file system of ``path``; its folder is flushed."""
        draft = self._root / _PARTIAL / secrets.token_hex(8)
        draft.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if isinstance(source, Path):
                shutil.copyfile(source, draft)
            else:
                draft.write_bytes(source)
            flush(draft)
            yield draft
            flush(path.parent)
        finally:
            draft.unlink(missing_ok=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        descriptor = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _chunks(key: str, file: BinaryIO) -> Iterator[bytes]:
    with _translated(key):
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _tag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def _translated(key: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise ObjectMissingError(key, "there is none") from error
    except OSError as error:
        raise ObjectStoreUnavailableError(key, str(error)) from error


@contextmanager
def _written(key: str) -> Iterator[None]:
    """As `_translated`; what is missing to a writer is a place to write to."""
    try:
        yield
    except OSError as error:
        raise ObjectStoreUnavailableError(key, str(error)) from error
