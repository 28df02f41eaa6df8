"""Moves a generation in a process of its own, and says what that took: ``python -m benchmarks.moving``.

The ways of `WAYS`, on the S3 server that the environment names: a worker's sync, and what it is held
against. Seconds and bytes are of the moving alone, imports and connections left out.
"""

import argparse
import asyncio
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import zstandard

from benchmarks.object_server import BUCKET, plain_client
from readie_infra.bucket import Bucket, SigningKey, Trust
from readie_infra.objects import open_objects
from readie_pipeline.publish.publishing import publish
from readie_pipeline.publish.stocktaking import take_stock
from readie_worker.generations import Machine
from readie_worker.syncing import BucketSync, Following

DEADLINE_S = 600.0
CHUNK_BYTES = 1 << 20
RAW_PREFIX = "raw/"


@dataclass(frozen=True, slots=True)
class Moved:
    """``cpu_s`` user and system; ``rss_mb`` before and ``peak_mb`` at most, in MB of 10^6 bytes."""

    seconds: float
    cpu_s: float
    rss_mb: float
    peak_mb: float


def move(way: str, prefix: str, folder: Path, key: Path) -> Moved:
    """Run a way in a new process. Raises `RuntimeError` when it fails."""
    os.sync()  # else it would wait for what the one before has left to the kernel to write
    command = [sys.executable, "-m", "benchmarks.moving", way, prefix, str(folder), str(key)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{way} failed:\n{done.stderr}")
    return Moved(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.moving", description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("prefix", help="of the keys in the bucket")
    parser.add_argument("folder", type=Path)
    parser.add_argument("key", type=Path, help="file of the publisher's key")
    options = parser.parse_args()
    run = WAYS[options.way](options.prefix, options.folder, SigningKey.read(options.key))
    _forget_peak()
    before, cpu, began = _memory_mb("VmRSS"), _cpu_s(), time.perf_counter()
    run()
    seconds, cpu = time.perf_counter() - began, _cpu_s() - cpu
    print(json.dumps(asdict(Moved(seconds, cpu, before, _memory_mb("VmHWM")))))


def publishing(prefix: str, folder: Path, key: SigningKey) -> Callable[[], object]:
    """Hash, compress and upload what is in ``folder``, as ``readie-pipeline publish`` does."""
    store = open_objects(f"s3://{BUCKET}/{prefix}")

    def run() -> None:
        stock = take_stock(folder, _quietly, allow_host_rootfs=True)
        publish(store, stock, key, _quietly)

    return run


def syncing(prefix: str, folder: Path, key: SigningKey) -> Callable[[], object]:
    """One look of a worker that has nothing yet; what it fetches is on the disk afterwards."""
    bucket = Bucket(open_objects(f"s3://{BUCKET}/{prefix}"), Trust.of([key.public], unsigned=False))
    machine = Machine("cpu", "fork", platform.python_version())
    sync = BucketSync(Following(bucket, folder), machine)
    return lambda: asyncio.run(sync_once(sync))


async def sync_once(sync: BucketSync) -> None:
    """Raises `RuntimeError` when not all of the generation has arrived."""
    looked = asyncio.Event()

    async def pause(_: float) -> None:
        looked.set()
        await asyncio.Event().wait()

    await sync.open()
    following = asyncio.create_task(sync.run(lambda: (), pause))
    await looked.wait()
    following.cancel()
    if sync.error or sync.notes:
        raise RuntimeError(f"the sync failed: {sync.error or sync.notes}")


def downloading(prefix: str, folder: Path, _: SigningKey) -> Callable[[], object]:
    """boto3's own download of every object as it is stored: several connections, no check."""
    return _download_all(f"{prefix}/objects/", folder)


def downloading_raw(prefix: str, folder: Path, _: SigningKey) -> Callable[[], object]:
    """The same of the files as they were before they were compressed."""
    return _download_all(f"{prefix}/{RAW_PREFIX}", folder)


def expanding(prefix: str, folder: Path, _: SigningKey) -> Callable[[], object]:
    """The least that gives proven files: get, expand, hash, write and flush, one after another."""
    client = plain_client(os.environ)
    keys = _keys(client, f"{prefix}/objects/")

    def run() -> None:
        for number, key in enumerate(keys):
            body = client.get_object(Bucket=BUCKET, Key=key)["Body"]
            digest = hashlib.sha256()
            with (folder / str(number)).open("wb") as file:
                for piece in zstandard.ZstdDecompressor().read_to_iter(
                    body, read_size=CHUNK_BYTES, write_size=CHUNK_BYTES
                ):
                    digest.update(piece)
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())

    return run


def upload_raw(environment: Mapping[str, str], prefix: str, files: Sequence[Path]) -> None:
    """What `downloading_raw` fetches."""
    client = plain_client(environment)
    for number, file in enumerate(files):
        client.upload_file(str(file), BUCKET, f"{prefix}/{RAW_PREFIX}{number}")
    client.close()


WAYS: Mapping[str, Callable[[str, Path, SigningKey], Callable[[], object]]] = {
    "publish": publishing,
    "sync": syncing,
    "download": downloading,
    "download-raw": downloading_raw,
    "expand": expanding,
}


def _download_all(prefix: str, folder: Path) -> Callable[[], object]:
    client = plain_client(os.environ)
    keys = _keys(client, prefix)

    def run() -> None:
        for number, key in enumerate(keys):
            client.download_file(BUCKET, key, str(folder / str(number)))

    return run


def _keys(client: Any, prefix: str) -> list[str]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return [found["Key"] for page in pages for found in page.get("Contents", ())]


def _quietly(names: Sequence[str], _: str) -> Sequence[str]:
    return names


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory_mb(field: str) -> float:
    """``VmRSS`` or its highest value so far, ``VmHWM``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"the kernel does not tell {field}")


def _forget_peak() -> None:
    """Let ``VmHWM`` begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    main()
