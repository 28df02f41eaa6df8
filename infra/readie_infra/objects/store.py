"""What every object store does, whatever is behind it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from readie_infra.objects.errors import ObjectKeyError
from readie_wire.keys import InvalidIdError, check_id

CHUNK_BYTES = 1 << 20  # of a stream: large enough for few calls, small beside any checkpoint
DOCUMENT_LIMIT_BYTES = 64 << 20  # of what `get` reads whole; manifests name thousands of files


@dataclass(frozen=True, slots=True)
class Document:
    """A small object, whole, with the tag by which the store knows this version of it."""

    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Head:
    """``size`` in bytes as stored; ``modified`` in seconds since 1970 by the store's clock."""

    size: int
    modified: float


@dataclass(frozen=True, slots=True)
class Listed:
    """One entry of a listing. The key is what the store says: it need not be one of ours."""

    key: str
    size: int
    modified: float


class ObjectStore(Protocol):
    """Bytes by key; an object appears whole or not at all.

    Each method raises `ObjectKeyError` for a key that is none and `ObjectStoreUnavailableError`
    when the store does not do its part. Nothing may be concluded from a store's own checksums:
    readers compare with hashes that they trust.
    """

    url: str

    def get(self, key: str) -> Document:
        """A small object. Raises `ObjectMissingError`."""
        ...

    def get_changed(self, key: str, etag: str) -> Document | None:
        """As `get`, but None while the object still has that tag."""
        ...

    def stream(self, key: str, offset: int = 0) -> AbstractContextManager[Iterator[bytes]]:
        """The bytes from ``offset`` on, in chunks. Raises `ObjectMissingError`.

        The iterator raises `ObjectStoreUnavailableError` when the connection breaks; a stream that
        just ends early is not noticed here.
        """
        ...

    def head(self, key: str) -> Head | None:
        """None when there is no such object."""
        ...

    def put(self, key: str, source: bytes | Path) -> None:
        """Store bytes or a file, in several parts when it is large; replaces what was there."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Raises `ObjectConflictError` when the key is taken, which may be by our own lost try."""
        ...

    def put_if_match(self, key: str, data: bytes, etag: str) -> None:
        """Replace exactly that version. Raises `ObjectConflictError`, as `put_if_absent` does."""
        ...

    def list(self, prefix: str) -> Iterator[Listed]:
        """Everything below ``prefix`` (which ends with a slash, or is empty), in any order."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""
        ...

    def drop_unfinished(self, prefix: str, before: float) -> int:
        """Remove what writers that died before then (seconds since 1970) left of objects; how many.

        These are no objects, so no listing shows them, and they take room all the same.
        """
        ...


def check_key(key: str) -> str:
    """Return ``key`` when each of its parts is a safe id. Raises `ObjectKeyError`."""
    try:
        for part in key.split("/"):
            check_id(part, "part")
    except InvalidIdError as error:
        raise ObjectKeyError(key, str(error)) from error
    return key
