"""What a bucket holds: generations, and which of them are current."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from readie_infra.bucket.errors import BucketError, NotPublishedError, UntrustedError
from readie_infra.bucket.reading import Bucket
from readie_infra.bucket.signing import Trust
from readie_infra.objects import ObjectStore
from readie_wire.keys import InvalidIdError, check_id
from readie_wire.publication import (
    GENERATIONS,
    POINTERS,
    PackingList,
    Pointer,
    PublicationError,
    Sealed,
    Target,
    manifest_key,
    pointer_key,
)


@dataclass(frozen=True, slots=True)
class Held:
    """One generation in the bucket. ``listed`` is None when it is refused, with the ``reason``.

    ``modified`` is when its manifest was written, in seconds since 1970.
    """

    flavor: str
    target: Target
    modified: float
    listed: PackingList | None
    signed_by: Sequence[str] = ()
    reason: str = ""

    @property
    def key(self) -> str:
        return manifest_key(self.flavor, self.target.generation)


@dataclass(frozen=True, slots=True)
class Pointers:
    """Those of a bucket that can be read, and why each of the others cannot."""

    found: Sequence[Pointer]
    refused: Sequence[str]


def pointers(store: ObjectStore) -> Pointers:
    """Raises `ObjectError`."""
    bucket = Bucket(store, Trust(unsigned=True))  # a pointer is not signed: what it names is
    found: list[Pointer] = []
    refused: list[str] = []
    for flavor, rootfs in _named(store, POINTERS, pointer_key):
        try:
            found.append(bucket.current(flavor, rootfs).pointer)
        except NotPublishedError:  # removed since it was listed
            continue
        except UntrustedError as error:
            refused.append(str(error))
    return Pointers(found, refused)


def generations(store: ObjectStore, trust: Trust) -> list[Held]:
    """Every generation, the newest first. Raises `ObjectError`."""
    bucket = Bucket(store, trust)
    found = []
    for flavor, generation in _named(store, GENERATIONS, manifest_key):
        key = manifest_key(flavor, generation)
        head = store.head(key)
        if head is None:  # collected meanwhile
            continue
        data = store.get(key).data
        target = Target(generation, hashlib.sha256(data).hexdigest())
        try:
            signers = tuple(Sealed.load(data).signatures)
            listed = bucket.open(data, flavor, generation)
        except (BucketError, PublicationError) as error:
            found.append(Held(flavor, target, head.modified, None, reason=str(error)))
        else:
            found.append(Held(flavor, target, head.modified, listed, signers))
    return sorted(found, key=lambda held: held.target.generation, reverse=True)


def _named(
    store: ObjectStore, space: str, key_of: Callable[[str, str], str]
) -> Iterator[tuple[str, str]]:
    """The two names in each key that is one of ours; what else lies there is not."""
    for entry in store.list(space):
        parts = entry.key.removeprefix(space).split("/")
        try:
            names = [check_id(part) for part in parts[:2]]
        except InvalidIdError:
            continue
        if len(names) == 2 and entry.key == key_of(names[0], names[1]):
            yield names[0], names[1]
