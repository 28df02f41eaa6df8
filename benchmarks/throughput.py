"""Calls per second with many callers at once, against what the machine can fork."""

import os
import threading
import time
from collections.abc import Callable

from benchmarks.reporting import Table
from benchmarks.round_trip import http_round_trip
from benchmarks.stack import Stack

CALLERS = (1, 4, 16)


def calls_per_second(
    make_call: Callable[[], Callable[[], object]], callers: int, span: float
) -> float:
    """Each caller has its own connection and calls without a pause for ``span`` seconds."""
    counts = [0] * callers
    calls = [make_call() for _ in range(callers)]
    for call in calls:
        call()
    end = time.perf_counter() + span

    def caller(index: int) -> None:
        while time.perf_counter() < end:
            calls[index]()
            counts[index] += 1

    threads = [threading.Thread(target=caller, args=(index,)) for index in range(callers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)


def forks_per_second(span: float) -> float:
    """A bare fork, exit and wait, one at a time: the bound on one fresh child per call."""
    count, end = 0, time.perf_counter() + span
    while time.perf_counter() < end:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        count += 1
    return count / span


def measure(stack: Stack, *, span: float) -> Table:
    table = Table("No-op calls per second, one worker", ["callers", "calls/s", ": bare forks/s"])
    forks = forks_per_second(min(span, 2.0))
    for callers in CALLERS:
        rate = calls_per_second(lambda: http_round_trip(stack), callers, span)
        table.rows.append([str(callers), f"{rate:.0f}", f"{rate / forks:.2f}"])
    table.remarks.append(
        f"- Each call has a fresh child. This machine forks {forks:.0f} bare children a second, one "
        "at a time, while nothing else runs.\n"
    )
    return table
