"""Objects of a generation into the bucket, and proof that they are there."""

import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from readie_infra.bucket import compress
from readie_infra.objects import ObjectStore
from readie_pipeline.errors import PublishError
from readie_pipeline.publish.stocktaking import Stock, Track

HEADS_TOGETHER = 8  # requests that ask whether an object is there


def upload(store: ObjectStore, stock: Stock, track: Track) -> int:
    """Put what the bucket lacks; answers how many bytes went up.

    An object that is there stays as it is: it is named by its content. Raises `PublishError`,
    `BucketError` and `ObjectError`.
    """
    there = set(_present(store, sorted(stock.listed.keys)))
    lacking = {file.name: file for file in stock.listed.files if file.key not in there}
    sent = 0
    try:
        with tempfile.TemporaryDirectory(prefix="readie-publish-") as folder:
            packed = Path(folder, "packed")
            for name in track(sorted(lacking), "uploading"):
                file = lacking[name]
                if file.key in there:  # another name for the same bytes
                    continue
                compress(stock.paths[name], packed, file)
                store.put(file.key, packed)
                _check_stored(store, file.key, packed.stat().st_size)
                there.add(file.key)
                sent += packed.stat().st_size
    except OSError as error:
        raise PublishError(
            f"files cannot be compressed in {tempfile.gettempdir()}: {error}; make room there, or "
            "name another folder by TMPDIR"
        ) from error
    return sent


def require_all(store: ObjectStore, keys: Iterable[str]) -> None:
    """Raise `PublishError` unless every object is in the bucket."""
    wanted = sorted(keys)
    if missing := set(wanted) - set(_present(store, wanted)):
        raise PublishError(
            f"{len(missing)} of {len(wanted)} objects are not in {store.url}, such as "
            f"{min(missing)}; publish the generation again"
        )


def _present(store: ObjectStore, keys: Sequence[str]) -> list[str]:
    with ThreadPoolExecutor(HEADS_TOGETHER) as pool:
        heads = pool.map(store.head, keys)
        return [key for key, head in zip(keys, heads, strict=True) if head is not None]


def _check_stored(store: ObjectStore, key: str, size: int) -> None:
    found = store.head(key)
    if found is None or found.size != size:
        store.delete(key)  # or the next try would take it for what it should be
        stored = "nothing" if found is None else f"{found.size} bytes"
        raise PublishError(
            f"{store.url} took {size} bytes of {key} and has {stored}; publish again, and if that "
            "is no help, to another store"
        )
