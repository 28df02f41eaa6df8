"""Files into objects and back: compressed on the way, compared by hash at both ends."""

import hashlib
import io
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

import zstandard

from readie_infra.bucket.errors import CorruptObjectError
from readie_infra.flushing import flush
from readie_infra.objects import ObjectMissingError, ObjectStore, ObjectStoreUnavailableError
from readie_wire.publication import PublishedFile, object_key

LEVEL = 3  # of zstd: half a core keeps up with a fast network, and expanding costs the same anyway
CHUNK_BYTES = 1 << 20
RESUMES = 4  # of one object in a row without a single new byte


def compress(path: Path, target: Path, file: PublishedFile) -> None:
    """Write ``path`` to ``target`` as it goes into the bucket.

    Raises `CorruptObjectError` when its bytes are not those of ``file``, and `OSError`.
    """
    with path.open("rb") as source, target.open("wb") as sink:
        reader = _Hashing(source)
        zstandard.ZstdCompressor(LEVEL, threads=-1).copy_stream(
            cast(IO[bytes], reader), sink, size=file.size, read_size=CHUNK_BYTES
        )
    if (reader.size, reader.digest.hexdigest()) != (file.size, file.sha256):
        raise CorruptObjectError(f"{path} has changed while it was being published")


def fetch(
    store: ObjectStore,
    file: PublishedFile,
    target: Path,
    arrived: Callable[[int], None] = lambda _: None,
) -> None:
    """Bring a file to ``target``, in a folder that exists: whole, right and flushed, or not at all.

    ``arrived`` is told of each piece, in bytes; what it raises ends the transfer. Raises
    `CorruptObjectError`, `ObjectError` and `OSError`.
    """
    # A published name never begins with a dot.
    draft = target.with_name(f".{target.name}.part")
    try:
        with draft.open("wb") as sink:

            def write(piece: bytes) -> None:
                sink.write(piece)
                arrived(len(piece))

            expand(store, file, write)
            sink.flush()
            os.fsync(sink.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    flush(target.parent)


def expand(store: ObjectStore, file: PublishedFile, write: Callable[[bytes], object]) -> None:
    """Give the bytes of a file to ``write``, piece by piece; they are right only when this returns.

    A connection that breaks is taken up where it broke. Raises `CorruptObjectError`, `ObjectError`.
    """
    size = _expand(store, file.sha256, file.name, file.size, write)
    if size != file.size:
        raise CorruptObjectError(f"{file.name} has {size} bytes instead of {file.size}")


def save(store: ObjectStore, sha256: str, limit: int, target: Path) -> None:
    """An object that has at most ``limit`` bytes, as the file ``target``: right when this returns.

    Raises `CorruptObjectError`, `ObjectError` and `OSError`.
    """
    with target.open("wb") as sink:
        _expand(store, sha256, f"object {sha256}", limit, sink.write)


def _expand(
    store: ObjectStore, sha256: str, name: str, limit: int, write: Callable[[bytes], object]
) -> int:
    """Its size, when its hash is right."""
    digest = hashlib.sha256()
    size = 0
    with _Resumed(store, object_key(sha256)) as stored:
        expanded = zstandard.ZstdDecompressor().stream_reader(
            cast(IO[bytes], stored), read_size=CHUNK_BYTES
        )
        try:
            while piece := expanded.read(CHUNK_BYTES):
                size += len(piece)
                if size > limit:
                    raise CorruptObjectError(f"{name} is longer than {limit} bytes")
                digest.update(piece)
                write(piece)
        except zstandard.ZstdError as error:
            raise CorruptObjectError(f"{name} does not expand: {error}") from error
    if digest.hexdigest() != sha256:
        raise CorruptObjectError(f"{name} has {size} bytes with another sha256 than was published")
    return size


class _Hashing(io.RawIOBase):
    """Reads through, and keeps hash and size of what was read."""

    def __init__(self, source: io.BufferedReader) -> None:
        self._source = source
        self.digest = hashlib.sha256()
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        piece = self._source.read(size)
        self.digest.update(piece)
        self.size += len(piece)
        return piece


class _Resumed(io.RawIOBase):
    """The stored bytes of one object as a file, across connections that break or end early."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        head = store.head(key)
        if head is None:
            raise ObjectMissingError(key, "there is none")
        self._store = store
        self._key = key
        self._size = head.size
        self._received = 0
        self._in_vain = 0
        self._connection = ExitStack()
        self._chunks: Iterator[bytes] | None = None
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        while not self._rest and self._received < self._size:
            self._rest = self._next()
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece

    def close(self) -> None:
        self._connection.close()
        super().close()

    def _next(self) -> bytes:
        """The next chunk; empty when the connection has to be made anew."""
        try:
            if self._chunks is None:
                stream = self._store.stream(self._key, self._received)
                self._chunks = self._connection.enter_context(stream)
            chunk = next(self._chunks, b"")
        except ObjectStoreUnavailableError as error:
            self._break(error)
            return b""
        if not chunk:
            self._break(None)
            return b""
        self._received += len(chunk)
        self._in_vain = 0
        return chunk

    def _break(self, error: ObjectStoreUnavailableError | None) -> None:
        self._connection.close()
        self._chunks = None
        self._in_vain += 1
        if self._in_vain > RESUMES:
            raise ObjectStoreUnavailableError(
                self._key, f"only {self._received} of {self._size} bytes arrive"
            ) from error
