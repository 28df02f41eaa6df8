"""Reads pointers and packing lists, and believes only what is proven."""

import hashlib
from dataclasses import dataclass

from readie_infra.bucket.errors import NotPublishedError, UntrustedError
from readie_infra.bucket.signing import Trust
from readie_infra.objects import Document, ObjectMissingError, ObjectStore
from readie_wire.publication import (
    PackingList,
    Pointer,
    PublicationError,
    Sealed,
    Target,
    manifest_key,
    pointer_key,
)


@dataclass(frozen=True, slots=True)
class FoundPointer:
    """A pointer, with the tag that a conditional replacement of it needs."""

    pointer: Pointer
    etag: str


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, and whom one believes. Calls block."""

    store: ObjectStore
    trust: Trust

    def current(self, flavor: str, rootfs: str) -> FoundPointer:
        """Raises `NotPublishedError`, `UntrustedError` and `ObjectError`."""
        key = pointer_key(flavor, rootfs)
        try:
            return _pointer(self.store.get(key), flavor, rootfs)
        except ObjectMissingError as error:
            raise NotPublishedError(f"nothing is published for {flavor}/{rootfs}") from error

    def changed(self, flavor: str, rootfs: str, etag: str) -> FoundPointer | None:
        """As `current`, but None while it is still the version of that tag."""
        key = pointer_key(flavor, rootfs)
        try:
            found = self.store.get_changed(key, etag)
        except ObjectMissingError as error:
            raise NotPublishedError(f"nothing is published for {flavor}/{rootfs}") from error
        return None if found is None else _pointer(found, flavor, rootfs)

    def packing_list(self, flavor: str, rootfs: str, target: Target) -> PackingList:
        """The files of a generation for that root filesystem. Raises `NotPublishedError`, `UntrustedError`, `ObjectError`."""
        try:
            data = self.store.get(manifest_key(flavor, target.generation)).data
        except ObjectMissingError as error:
            raise NotPublishedError(f"generation {target.generation} is not published") from error
        if hashlib.sha256(data).hexdigest() != target.manifest_sha256:
            raise UntrustedError(
                f"the manifest of generation {target.generation} is not the one that was pointed to"
            )
        listed = self.open(data, flavor, target.generation)
        if listed.rootfs != rootfs:
            raise UntrustedError(
                f"generation {target.generation} is for the root filesystem {listed.rootfs}, "
                f"not for {rootfs}"
            )
        return listed

    def open(self, data: bytes, flavor: str, generation: str) -> PackingList:
        """A packing list from its sealed bytes. Raises `UntrustedError`."""
        try:
            listed = PackingList.load(self.trust.open(Sealed.load(data)).encode())
        except (PublicationError, UntrustedError) as error:
            raise UntrustedError(f"generation {generation} is refused: {error}") from error
        if (listed.flavor, listed.generation) != (flavor, generation):
            raise UntrustedError(
                f"generation {generation} of {flavor} is refused: its manifest is that of "
                f"{listed.generation} of {listed.flavor}"
            )
        return listed


def _pointer(found: Document, flavor: str, rootfs: str) -> FoundPointer:
    try:
        pointer = Pointer.load(found.data)
    except PublicationError as error:
        raise UntrustedError(
            f"the pointer of {flavor}/{rootfs} is refused: {error}; delete "
            f"{pointer_key(flavor, rootfs)} and publish again"
        ) from error
    if (pointer.flavor, pointer.rootfs) != (flavor, rootfs):
        raise UntrustedError(
            f"the pointer of {flavor}/{rootfs} is one of {pointer.flavor}/{pointer.rootfs}"
        )
    return FoundPointer(pointer, found.etag)
