"""Publishing a generation, and going back to one, in the order that keeps readers whole."""

import hashlib
from dataclasses import dataclass

from readie_infra.bucket import Bucket, FoundPointer, SigningKey, Trust, UntrustedError
from readie_infra.objects import ObjectConflictError, ObjectMissingError, ObjectStore, probe
from readie_pipeline.errors import PublishError
from readie_pipeline.publish.pointing import intending, new_pointer, point, read_pointer
from readie_pipeline.publish.stocktaking import Stock, Track
from readie_pipeline.publish.uploading import require_all, upload
from readie_wire.publication import Intent, PackingList, Pointer, Sealed, Target, manifest_key


@dataclass(frozen=True, slots=True)
class Published:
    """What came of it. ``sent`` in bytes; ``unchanged``: it was current already.

    If something was sent then, it had been lost from the bucket.
    """

    pointer: Pointer
    listed: PackingList
    sent: int
    unchanged: bool = False


def publish(store: ObjectStore, stock: Stock, key: SigningKey | None, track: Track) -> Published:
    """Make a generation current: objects, then its signed list, then the pointer.

    Dying anywhere before the last step changes nothing for readers, and doing it again goes on
    from what is there. Without a key the list is unsigned. Raises `PublishError`, `LostRaceError`,
    `BucketError` and `ObjectError`.
    """
    probe(store)
    listed = stock.listed
    # Read before anything is sent: who publishes replaces what was current when they began.
    base = read_pointer(store, listed.flavor, listed.rootfs)
    text = listed.dump().decode()
    sealed = (Sealed(text) if key is None else key.seal(text)).dump()
    target = Target(listed.generation, hashlib.sha256(sealed).hexdigest())
    pointer = new_pointer(base, listed.flavor, listed.rootfs, target)
    with intending(store, _intent(pointer, listed)):
        sent = upload(store, stock, track)
        _put_manifest(store, listed, sealed)
        require_all(store, listed.keys)
        if base is not None and base.pointer.target == target:
            return Published(base.pointer, listed, sent, unchanged=True)
        point(store, base, pointer)
    return Published(pointer, listed, sent)


def roll_back(
    store: ObjectStore, flavor: str, rootfs: str, generation: str | None = None
) -> Pointer:
    """Make the previous generation current again, or the one that is named.

    Raises `PublishError`, `LostRaceError`, `BucketError` and `ObjectError`.
    """
    base = read_pointer(store, flavor, rootfs)
    if base is None:
        raise PublishError(f"nothing is published for {flavor}/{rootfs} in {store.url}")
    target = _rollback_target(store, base, generation)
    if target == base.pointer.target:
        raise PublishError(f"generation {target.generation} is current already")
    bucket = Bucket(store, Trust(unsigned=True))  # whoever serves it checks the signature
    listed = bucket.packing_list(flavor, rootfs, target)
    pointer = new_pointer(base, flavor, rootfs, target)
    with intending(store, _intent(pointer, listed)):
        require_all(store, listed.keys)
        point(store, base, pointer)
    return pointer


def _intent(pointer: Pointer, listed: PackingList) -> Intent:
    key = manifest_key(listed.flavor, listed.generation)
    return Intent(pointer.publication, listed.generation, sorted({key, *listed.keys}))


def _put_manifest(store: ObjectStore, listed: PackingList, sealed: bytes) -> None:
    key = manifest_key(listed.flavor, listed.generation)
    try:
        store.put_if_absent(key, sealed)
    except ObjectConflictError as error:
        found = store.get(key)
        if found.data == sealed:  # from a run that was cut short, or by a client that repeats puts
            return
        if _is_readable(store, listed, found.data):
            raise PublishError(
                f"generation {listed.generation} is in {store.url} with other files or another "
                "signature; capture it again to get a generation of its own"
            ) from error
        store.put_if_match(key, sealed, found.etag)  # it is damaged, and nobody can use it


def _is_readable(store: ObjectStore, listed: PackingList, data: bytes) -> bool:
    try:
        Bucket(store, Trust(unsigned=True)).open(data, listed.flavor, listed.generation)
    except UntrustedError:
        return False
    return True


def _rollback_target(store: ObjectStore, base: FoundPointer, generation: str | None) -> Target:
    pointer = base.pointer
    if generation is None:
        if pointer.previous is None:
            raise PublishError(
                f"{pointer.flavor}/{pointer.rootfs} has no previous generation; name one with --to"
            )
        return pointer.previous
    try:
        data = store.get(manifest_key(pointer.flavor, generation)).data
    except ObjectMissingError as error:
        raise PublishError(f"generation {generation} is not in {store.url}") from error
    return Target(generation, hashlib.sha256(data).hexdigest())
