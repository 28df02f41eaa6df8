"""``python -m benchmarks.gvisor_starts``: gVisor sandboxes restored against cold, as root.

Times go from the order until a function that imports its packages has returned. Cold, restored and
restored with the sandbox created ahead run alternately, each with package sets that this
interpreter (or ``--python``'s) has.
"""

import argparse
import asyncio
import itertools
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import readie
from benchmarks.measuring import Series
from benchmarks.reporting import Table, milliseconds, write
from benchmarks.stack import capture, running
from benchmarks.starts import pandas_sum
from readie_wire.framing import Decoder, FrameType, encode_message
from readie_wire.manifest import CheckpointMeta, dump_meta
from readie_wire.outcome import StartKind
from readie_worker.sandbox.api import Checkpoint, Limits, Sandbox, SandboxSpec
from readie_worker.sandbox.errors import SandboxError
from readie_worker.sandbox.gvisor.runtime import GVisorRuntime
from readie_worker.sandbox.selftest import find_runsc

PACKAGE_SETS = ("", "numpy", "numpy,pandas", "numpy,pandas,sklearn.linear_model", "torch")
LIMITS = Limits(memory=8 << 30)
DEADLINE_S = 120.0
POOL_SETTLE_S = 2.0  # between two calls: the pool is refilled then
SETTLE_S = 0.3  # between two starts: what is made ahead is made then, off everybody's path
_numbers = itertools.count(1)


@dataclass
class Starts:
    """One package set: its checkpoint and the times in seconds, by how the sandbox started."""

    imports: str
    checkpoint: Checkpoint
    megabytes: float
    cold: list[float]
    restored: list[float]
    ahead: list[float]


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gvisor_starts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="turns of each kind of start")
    parser.add_argument("--row", type=int, default=100, help="restores in a row, counting failures")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="rd-") as name:
        plain = make_runtime(Path(name), options.python, ahead=0)
        ahead = make_runtime(Path(name), options.python, ahead=1)
        await plain.open()
        await ahead.open()
        try:
            sets = [
                found
                for imports in PACKAGE_SETS
                if (found := await prepare(plain, ahead, imports, Path(name))) is not None
            ]
            for _ in range(options.rounds):
                for one in sets:
                    await turn(plain, ahead, one)
            tables = [
                starts_table(sets),
                await together_table(plain, sets),
                await row_table(plain, sets, options.row),
            ]
        finally:
            await ahead.close()
            await plain.close()
    tables.append(await asyncio.to_thread(pool_table, options.rounds))
    raw = {
        kind: [Series(one.imports or "none", getattr(one, kind)) for one in sets]
        for kind in ("cold", "restored", "ahead")
    }
    page = write(tables, raw, load=load, name="gvisor")
    print(page.read_text())


def make_runtime(folder: Path, python: Path, *, ahead: int) -> GVisorRuntime:
    runsc = find_runsc()
    if runsc is None:
        raise SystemExit("no runsc on the PATH; install one with infra/gvisor/install")
    return GVisorRuntime(folder / "run", runsc=runsc, python=python, network="none", ahead=ahead)


async def prepare(
    plain: GVisorRuntime, ahead: GVisorRuntime, imports: str, folder: Path
) -> Starts | None:
    """Capture and adopt; `None` when the interpreter lacks the packages."""
    names = [name for name in imports.split(",") if name]
    path = folder / f"checkpoint_{next(_numbers)}"
    path.mkdir()
    try:
        saved = await plain.capture(names, path, limits=LIMITS, deadline=DEADLINE_S)
    except SandboxError as error:
        print(f"left out {imports}: {error}", file=sys.stderr)
        return None
    here = plain.here
    meta = CheckpointMeta(
        id=path.name,
        runtime="gvisor",
        imports=names,
        gvisor_version=here.gvisor_version,
        fingerprint=here.fingerprint,
        rootfs_digest=here.rootfs_digest,
        image_files=saved.image_files,
        mapped_files=saved.mapped_files,
    )
    key = f"bench/{path.name}"
    checkpoint = Checkpoint(key, names, path, json.loads(dump_meta(meta)))
    await plain.adopt(checkpoint)
    await ahead.adopt(checkpoint)
    return Starts(imports, checkpoint, saved.bytes_on_disk / 1e6, [], [], [])


async def turn(plain: GVisorRuntime, ahead: GVisorRuntime, one: Starts) -> None:
    one.cold.append(await timed(lambda: plain.cold(spec()), one.imports))
    await asyncio.sleep(SETTLE_S)
    one.restored.append(await restored(plain, one))
    await asyncio.sleep(SETTLE_S)
    one.ahead.append(await restored(ahead, one))
    await asyncio.sleep(SETTLE_S)


async def restored(runtime: GVisorRuntime, one: Starts) -> float:
    return await timed(lambda: runtime.restore(one.checkpoint, spec()), one.imports)


def spec() -> SandboxSpec:
    return SandboxSpec(f"readie-bench-{next(_numbers)}", LIMITS, network="none")


async def timed(start: Callable[[], Awaitable[Sandbox]], imports: str) -> float:
    """Seconds from the order until the function has returned; the sandbox is gone afterwards."""
    began = time.perf_counter()
    sandbox = await start()
    try:
        await run(sandbox, imports)
        return time.perf_counter() - began
    finally:
        await sandbox.destroy()


async def run(sandbox: Sandbox, imports: str) -> None:
    """One call that imports the packages, up to its result."""
    loop = asyncio.get_running_loop()
    source = "".join(f"import {name}\n" for name in imports.split(",") if name) + "result = 1"
    header = {
        "v": 1,
        "kind": "source",
        "function": "bench",
        "call_id": "call-bench",
        "environment": {},
        "secrets": {},
    }
    body = json.dumps({"source": source}).encode()
    call = b"".join(encode_message(FrameType.CALL, header, body))
    await loop.sock_sendall(sandbox.connection, call + b"".join(encode_message(FrameType.GO)))
    decoder = Decoder()
    async with asyncio.timeout(DEADLINE_S):
        while data := await loop.sock_recv(sandbox.connection, 1 << 16):
            for message in decoder.feed(data):
                if message.type is FrameType.RESULT:
                    return
                if message.type is FrameType.ERROR:
                    raise RuntimeError(message.header["error"])
    raise RuntimeError("the sandbox ended without a result")


def starts_table(sets: Sequence[Starts]) -> Table:
    table = Table(
        "From the order until a function that imports its packages has returned (median, ms)",
        [
            "imports",
            "image MB",
            "cold",
            "restored",
            "cold : restored",
            "created ahead",
            "cold : ahead",
        ],
    )
    for one in sets:
        cold, restored, ahead = map(statistics.median, (one.cold, one.restored, one.ahead))
        table.rows.append(
            [
                one.imports or "none",
                f"{one.megabytes:.0f}",
                milliseconds(cold),
                milliseconds(restored),
                f"{cold / restored:.1f}",
                milliseconds(ahead),
                f"{cold / ahead:.1f}",
            ]
        )
    if len(sets) > 1:
        line = statistics.linear_regression(
            [one.megabytes for one in sets], [statistics.median(one.restored) for one in sets]
        )
        table.remarks.append(
            f"A restore costs {line.slope * 1000:.2f} ms per MB of image on a floor of "
            f"{line.intercept * 1000:.0f} ms (least squares)."
        )
    return table


async def together_table(plain: GVisorRuntime, sets: Sequence[Starts]) -> Table:
    table = Table(
        "Restores at once, each to its result (median of all, ms)", ["imports", "1", "4", "8"]
    )
    for one in sets:
        row = [one.imports or "none"]
        for count in (1, 4, 8):
            times = await asyncio.gather(*(restored(plain, one) for _ in range(count)))
            row.append(milliseconds(statistics.median(times)))
        table.rows.append(row)
    return table


async def row_table(plain: GVisorRuntime, sets: Sequence[Starts], count: int) -> Table:
    """Failures of many restores in a row, and the CPU time of one with its removal."""
    table = Table(
        f"{count} restores in a row", ["imports", "failed", "CPU ms per restore and removal"]
    )
    for one in sets[-1:]:
        failed, before = 0, cpu_seconds()
        for _ in range(count):
            try:
                await restored(plain, one)
            except SandboxError:
                failed += 1
        spent = (cpu_seconds() - before) / count
        table.rows.append([one.imports or "none", str(failed), milliseconds(spent)])
    return table


def pool_table(rounds: int) -> Table:
    """Calls through a whole Readie that find a sandbox restored ahead, by their receipts."""
    starts: list[float] = []
    totals: list[float] = []
    with tempfile.TemporaryDirectory(prefix="rd-") as name:
        generation = Path(name) / "cpu"
        capture(generation, ["numpy,pandas"], runtime="gvisor")
        with running(generation, runtime="gvisor") as stack:
            readie.configure(url=stack.url, auth_token=stack.token)
            function = readie.remote(pandas_sum)
            for _ in range(rounds):
                time.sleep(POOL_SETTLE_S)
                call = function.spawn()
                call.get(timeout=DEADLINE_S)
                if call.receipt is not None and call.receipt.start_kind == StartKind.POOL:
                    starts.append(call.receipt.start_ms / 1000)
                    totals.append(call.receipt.total_ms / 1000)
    heads = ["", "runs", "median ms", "longest ms"]
    table = Table("A pandas function in a sandbox restored ahead of its call", heads)
    for what, times in (("taken until started", starts), ("queued until ended", totals)):
        median = milliseconds(statistics.median(times))
        table.rows.append([what, str(len(times)), median, milliseconds(max(times))])
    return table


def cpu_seconds() -> float:
    """Of this process and of all that it has outlived, sandboxes among them."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, whose))


if __name__ == "__main__":
    asyncio.run(main())
