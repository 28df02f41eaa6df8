"""Restores of a gVisor checkpoint that has just come from a bucket, against later ones."""

import asyncio
import json
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.gvisor_starts import SETTLE_S, Starts, make_runtime, restored
from benchmarks.image_files import MB
from benchmarks.measuring import Series
from benchmarks.moving import move, sync_once
from benchmarks.object_server import BUCKET
from benchmarks.reporting import Table, milliseconds
from readie_infra.bucket import Bucket, SigningKey, Trust
from readie_infra.objects import open_objects
from readie_wire.manifest import load_manifest
from readie_worker.generations import Machine
from readie_worker.sandbox.api import Checkpoint
from readie_worker.sandbox.gvisor.runtime import GVisorRuntime
from readie_worker.syncing import BucketSync, Following

PREFIX = "restores"
LATER = 3  # restores after the first one, of each sync
FIRST, NEXT, COLD_CACHE = "first after the sync", "later ones", "its files not in the page cache"


def measure(captured: Path, checkpoint: str, key: Path, rounds: int) -> tuple[Table, list[Series]]:
    """``captured`` is a gVisor generation; it is published, then synced anew in every round."""
    move("publish", PREFIX, captured, key)
    times = asyncio.run(_measure(captured, checkpoint, SigningKey.read(key), rounds))
    series = [Series(name, seconds) for name, seconds in times.items()]
    table = Table(
        "Restores of a checkpoint that came from the bucket, to the result",
        ["", "runs", "median ms", "longest ms", f": {NEXT}"],
    )
    reference = next(one.median for one in series if one.name == NEXT)
    for one in series:
        ratio = f"{one.median / reference:.2f}"
        cells = [milliseconds(one.median), milliseconds(max(one.seconds)), ratio]
        table.rows.append([one.name, str(len(one.seconds)), *cells])
    folder = captured / "checkpoints" / checkpoint
    size = sum(file.stat().st_size for file in folder.iterdir())
    table.remarks.append(
        f"- {checkpoint} has {size / MB:.0f} MB. The last row is after the kernel was told to forget the "
        "files, as after a restart of the machine."
    )
    return table, series


async def _measure(
    captured: Path, checkpoint: str, key: SigningKey, rounds: int
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {FIRST: [], NEXT: [], COLD_CACHE: []}
    manifest = load_manifest((captured / "manifest.json").read_bytes())
    bucket = Bucket(open_objects(f"s3://{BUCKET}/{PREFIX}"), Trust.of([key.public], unsigned=False))
    machine = Machine("cpu", "gvisor", platform.python_version())
    with tempfile.TemporaryDirectory(prefix="rd-") as name:
        runtime = make_runtime(Path(name), Path(sys.executable), ahead=0)
        await runtime.open()
        try:
            for number in range(rounds):
                folder = Path(name) / f"synced-{number}"
                sync = BucketSync(Following(bucket, folder, manifest.rootfs_digest), machine)
                await sync_once(sync)
                place = await asyncio.to_thread((sync.root / "checkpoints" / checkpoint).resolve)
                one = await _adopted(runtime, place, number)
                times[FIRST].append(await restored(runtime, one))
                for _ in range(LATER):
                    await asyncio.sleep(SETTLE_S)
                    times[NEXT].append(await restored(runtime, one))
                await asyncio.sleep(SETTLE_S)
                _forget(place)
                times[COLD_CACHE].append(await restored(runtime, one))
                await asyncio.sleep(SETTLE_S)
                shutil.rmtree(folder)
        finally:
            await runtime.close()
    return times


async def _adopted(runtime: GVisorRuntime, folder: Path, number: int) -> Starts:
    meta = json.loads((folder / "meta.json").read_bytes())
    checkpoint = Checkpoint(f"synced-{number}/{folder.name}", meta["imports"], folder, meta)
    await runtime.adopt(checkpoint)
    return Starts(",".join(meta["imports"]), checkpoint, 0.0, [], [], [])


def _forget(folder: Path) -> None:
    """Drop a folder's files from the page cache."""
    for file in folder.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
