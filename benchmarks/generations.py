"""``python -m benchmarks.generations``: generations in a bucket, on a real S3 server.

What a sync and a publication cost beside plain transfers, what a bucket stores, how soon a fleet serves
what is published and what its calls feel of that, and restores right after a sync. The last and what is
stored are of gVisor images where root and ``runsc`` are there, else of made-up ones, or left out.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import synced_restores
from benchmarks.image_files import MB, with_images
from benchmarks.measuring import Series
from benchmarks.moving import Moved, move, upload_raw
from benchmarks.object_server import BUCKET, object_server
from benchmarks.reporting import Table, write
from benchmarks.stack import capture
from benchmarks.swapping import Publisher, measure_arrival, measure_swap
from readie_infra.bucket import SigningKey
from readie_infra.logging import configure_logging
from readie_infra.objects import open_objects
from readie_wire.manifest import dump_manifest, load_manifest
from readie_worker.sandbox.selftest import find_runsc

WAYS = {
    "sync": "a worker's sync",
    "expand": "get, expand, hash and flush, one after another",
    "download": "boto3, the compressed objects",
    "download-raw": "boto3, the same files uncompressed",
}
BASE = "download-raw"
GVISOR_SETS = ("six", "numpy", "numpy,pandas")
RESTORED = "checkpoint_3"  # the largest of them
CHANGED = "checkpoint_1"  # the one whose package has changed

Measured = tuple[Table, list[Series]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. Bytes are of images before compression."""

    transfer: int = 256 * MB
    rounds: int = 5
    arrival: int = 20 * MB
    swap: int = 256 * MB
    memory: Sequence[int] = (200 * MB, 2000 * MB)


QUICK = Sizes(20 * MB, rounds=1, arrival=2 * MB, swap=20 * MB, memory=(20 * MB, 60 * MB))


@dataclass(frozen=True, slots=True)
class Ground:
    """``captured`` is a fork generation whose ``checkpoint_1`` holds six."""

    folder: Path
    captured: Path
    key: Path
    with_gvisor: bool


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generations", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    parser.add_argument("--gigabytes", type=float, help="of the largest generation (2)")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="some parts, not all")
    options = parser.parse_args()
    sizes = QUICK if options.quick else Sizes()
    if options.gigabytes:
        sizes = replace(sizes, memory=(sizes.memory[0], int(options.gigabytes * 1000 * MB)))
    configure_logging(level="warning")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="readie-bench-") as name:
        folder = Path(name)
        with_gvisor = os.geteuid() == 0 and find_runsc() is not None
        ground = Ground(folder, folder / "captured", folder / "key.pem", with_gvisor)
        SigningKey.create(ground.key)
        capture(ground.captured, ["six"])
        (folder / "server").mkdir()
        with object_server(folder / "server") as environment:
            os.environ.update(environment)
            measured, failed = measure(ground, sizes, options.only or list(PARTS))
    tables = [table for table, _ in measured]
    raw = {table.title: series for table, series in measured}
    whole = not (options.quick or options.only or failed)
    page = write(tables, raw, load=load, name="generations" if whole else "generations-part")
    print(page.read_text())
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def measure(ground: Ground, sizes: Sizes, parts: Sequence[str]) -> tuple[list[Measured], list[str]]:
    """What was measured, and the parts that failed: one that does must not cost the others."""
    measured, failed = [], []
    for name in parts:
        print(f"measuring {name}", file=sys.stderr)
        try:
            measured += PARTS[name](ground, sizes)
        except Exception:
            traceback.print_exc()
            failed.append(name)
    return measured, failed


def images(ground: Ground, sizes: Sizes) -> list[Measured]:
    """What a bucket stores, and restores of what came from it."""
    measured = [measure_stored(ground, sizes)]
    if ground.with_gvisor:
        first = ground.folder / "stored-first"
        measured.append(synced_restores.measure(first, RESTORED, ground.key, sizes.rounds))
    return measured


def transfers(ground: Ground, sizes: Sizes) -> list[Measured]:
    return [measure_transfers(ground, sizes)]


def swaps(ground: Ground, sizes: Sizes) -> list[Measured]:
    arriving = Publisher(ground.captured, ground.folder, ground.key, "arrival", sizes.arrival)
    swapped = Publisher(ground.captured, ground.folder, ground.key, "swap", sizes.swap)
    return [measure_arrival(arriving, rounds=sizes.rounds), measure_swap(swapped)]


def memory(ground: Ground, sizes: Sizes) -> list[Measured]:
    return [measure_memory(ground, sizes)]


PARTS: Mapping[str, Callable[[Ground, Sizes], list[Measured]]] = {
    "images": images,
    "transfers": transfers,
    "swaps": swaps,
    "memory": memory,
}


def measure_transfers(ground: Ground, sizes: Sizes) -> Measured:
    """A worker's sync and what it is held against, in turns, each in a process of its own."""
    made = ground.folder / "transfer"
    with_images(ground.captured, made, {"checkpoint_1": sizes.transfer}, seed=1)
    move("publish", "transfer", made, ground.key)
    files = [file for file in made.rglob("*") if file.is_file()]
    upload_raw(os.environ, "transfer", files)
    written = sum(file.stat().st_size for file in files)
    crossing = dict.fromkeys(WAYS, stored_bytes("transfer")) | {BASE: written}
    moved: dict[str, list[Moved]] = {way: [] for way in WAYS}
    order = deque(WAYS)
    for number in range(sizes.rounds + 1):
        for way in order:
            with tempfile.TemporaryDirectory(dir=ground.folder) as target:
                one = move(way, "transfer", Path(target), ground.key)
            if number:  # the first round warms the server's cache
                moved[way].append(one)
        order.rotate()  # nobody always comes after the same one
    shutil.rmtree(made)
    heads = [
        "",
        "MB over the network",
        "median s",
        "MB of files a second",
        "CPU s",
        f"CPU : {BASE}",
    ]
    table = Table(f"{written / MB:.0f} MB of files from the bucket to the disk", heads)
    base_cpu_s = statistics.median(one.cpu_s for one in moved[BASE])
    for way, title in WAYS.items():
        seconds, cpu_s = (
            statistics.median(getattr(one, field) for one in moved[way])
            for field in ("seconds", "cpu_s")
        )
        cells = [f"{crossing[way] / MB:.0f}", f"{seconds:.2f}", f"{written / MB / seconds:.0f}"]
        table.rows.append([title, *cells, f"{cpu_s:.2f}", f"{cpu_s / base_cpu_s:.2f}"])
    table.heads = [*heads[:-1], "CPU : boto3 uncompressed"]
    table.remarks.append(
        "- The server runs on the same cores. A sync leaves files that were hashed and flushed; boto3's "
        "downloads are neither, and use ten connections for large objects."
    )
    return table, [
        Series(f"{title}, {what}", [getattr(one, field) for one in moved[way]])
        for way, title in WAYS.items()
        for what, field in (("seconds", "seconds"), ("CPU seconds", "cpu_s"))
    ]


def measure_stored(ground: Ground, sizes: Sizes) -> Measured:
    """What a bucket grows by: a first generation, one checkpoint anew, all captured anew."""
    make = _capture_gvisor if ground.with_gvisor else _make_up(ground, sizes)
    first, anew = ground.folder / "stored-first", ground.folder / "stored-anew"
    make(first, 1)
    make(anew, 2)
    changed = ground.folder / "stored-changed"
    replace_checkpoint(first, anew, changed)
    table = Table(
        "What a bucket stores of a generation",
        ["generation", "MB of files", "MB that went up", "stored : files"],
    )
    series = []
    before = 0
    for title, folder in (
        ("the first", first),
        ("the next, one of its checkpoints captured anew", changed),
        ("the next, all captured anew", anew),
    ):
        move("publish", "stored", folder, ground.key)
        after = stored_bytes("stored")
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        grown = after - before
        cells = [f"{size / MB:.1f}", f"{grown / MB:.1f}", f"{grown / size:.2f}"]
        table.rows.append([title, *cells])
        series.append(Series(f"{title}, bytes of files and stored", [size, grown]))
        before = after
    what = (
        f"Checkpoints in gVisor of {'; '.join(GVISOR_SETS)}"
        if ground.with_gvisor
        else "Made-up images"
    )
    table.remarks.append(
        f"- {what}. A capture makes new images of every checkpoint, and a package that changes on a host "
        "root filesystem changes its digest: then all are captured anew."
    )
    return table, series


def measure_memory(ground: Ground, sizes: Sizes) -> Measured:
    """Peak memory of a publisher and of a worker's sync, for a small and a large generation."""
    table = Table(
        "Memory while a generation moves, one image file",
        ["", "MB of files", "seconds", "RSS MB before", "peak RSS MB", "more"],
    )
    series = []
    for number, size in enumerate(sizes.memory):
        prefix = f"memory-{number}"
        made = ground.folder / prefix
        with_images(ground.captured, made, {"checkpoint_1": size}, seed=number)
        published = move("publish", prefix, made, ground.key)
        shutil.rmtree(made)
        with tempfile.TemporaryDirectory(dir=ground.folder) as target:
            synced = move("sync", prefix, Path(target), ground.key)
        for title, one in (("publisher", published), ("sync of a worker", synced)):
            cells = [f"{one.seconds:.1f}", f"{one.rss_mb:.0f}", f"{one.peak_mb:.0f}"]
            more = f"{one.peak_mb - one.rss_mb:.0f}"
            table.rows.append([title, f"{size / MB:.0f}", *cells, more])
            series.append(Series(f"{title}, {size / MB:.0f} MB, peak RSS in MB", [one.peak_mb]))
    return table, series


def stored_bytes(prefix: str) -> int:
    return sum(one.size for one in open_objects(f"s3://{BUCKET}/{prefix}").list("objects/"))


def replace_checkpoint(first: Path, anew: Path, folder: Path) -> None:
    """``first`` with `CHANGED` taken from ``anew``, as a generation of its own."""
    shutil.copytree(first, folder)
    shutil.rmtree(folder / "checkpoints" / CHANGED)
    shutil.copytree(anew / "checkpoints" / CHANGED, folder / "checkpoints" / CHANGED)
    manifest = load_manifest((folder / "manifest.json").read_bytes())
    manifest = replace(manifest, nonce=f"{CHANGED} anew").sealed()
    (folder / "manifest.json").write_bytes(dump_manifest(manifest))


def _capture_gvisor(folder: Path, _: int) -> None:
    capture(folder, GVISOR_SETS, runtime="gvisor")


def _make_up(ground: Ground, sizes: Sizes) -> Callable[[Path, int], object]:
    each = dict.fromkeys(("checkpoint_0", CHANGED), sizes.transfer // 8)
    return lambda folder, seed: with_images(ground.captured, folder, each, seed)


if __name__ == "__main__":
    main()
