"""What the page cache holds of real files, and which checkpoints are brought into it."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from readie_worker.page_cache import cached_bytes, read_in
from readie_worker.prefetching import Prefetcher
from readie_worker.sandbox.api import Checkpoint
from support.calling import until
from support.requirements import require_part

SIZE = 3 << 20
EVICT_WITHIN_S = 10.0  # a page that the kernel is busy with stays at first


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a file system whose pages the kernel gives back when it is asked to."""
    probe = tmp_path / "probe"
    probe.write_bytes(bytes(SIZE))
    evict(probe)
    told = "mincore" if cached_bytes(probe) == 0 else None
    require_part("page cache", told, "run on Linux, with the temporary folder on a disk")
    return tmp_path


def evict(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        deadline = time.monotonic() + EVICT_WITHIN_S
        while cached_bytes(path) and time.monotonic() < deadline:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            time.sleep(0.001)


def made(folder: Path, sizes: Mapping[str, int]) -> Sequence[Checkpoint]:
    """Checkpoints with an image of so many bytes each, none of them in the page cache."""
    checkpoints = []
    for name, size in sizes.items():
        place = folder / name
        place.mkdir()
        (place / "meta.json").write_text("{}")
        image = place / "pages.img"
        image.write_bytes(os.urandom(size))
        evict(image)
        assert cached_bytes(image) == 0
        checkpoints.append(Checkpoint(f"gen/{name}", (), place, {}))
    return checkpoints


def in_memory(checkpoint: Checkpoint) -> int | None:
    assert checkpoint.path is not None
    return cached_bytes(checkpoint.path / "pages.img")


def test_a_file_is_in_memory_once_it_was_read(folder: Path) -> None:
    image = folder / "image"
    image.write_bytes(os.urandom(SIZE + 1))
    evict(image)
    assert cached_bytes(image) == 0
    read_in(image, lambda: True)
    assert cached_bytes(image) == 0
    read_in(image, lambda: False)
    assert (cached_bytes(image) or 0) >= SIZE + 1
    (folder / "empty").touch()
    assert cached_bytes(folder / "empty") == 0


async def test_the_most_valuable_checkpoints_are_read_in_as_far_as_the_budget_goes(
    folder: Path,
) -> None:
    best, large, small = made(folder, {"best": SIZE, "large": 2 * SIZE, "small": SIZE})
    prefetcher = Prefetcher(lambda: (best, large, small), budget=2 * SIZE)
    running = asyncio.create_task(prefetcher.run())
    try:
        await until(lambda: len(prefetcher.cached) == 3)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert prefetcher.cached == {best.key: SIZE, large.key: 0, small.key: SIZE}
    assert [in_memory(one) for one in (best, large, small)] == [SIZE, 0, SIZE]


async def test_what_the_kernel_took_back_is_told_and_left_to_it(folder: Path) -> None:
    (only,) = made(folder, {"only": SIZE})
    prefetcher = Prefetcher(lambda: (only,), budget=SIZE)
    running = asyncio.create_task(prefetcher.run())
    try:
        await until(lambda: prefetcher.cached == {only.key: SIZE})
        assert only.path is not None
        evict(only.path / "pages.img")
        prefetcher.look()
        await until(lambda: prefetcher.cached == {only.key: 0})
        (fresh,) = made(folder, {"fresh": SIZE})
        prefetcher._by_value = lambda: (fresh, Checkpoint("gen/gone", (), folder / "gone", {}))
        prefetcher.look()
        await until(lambda: prefetcher.cached == {fresh.key: SIZE})
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
