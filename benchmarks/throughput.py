"""Calls per second with many callers at once, against what the machine can fork."""

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from benchmarks.reporting import Table
from benchmarks.round_trip import http_round_trip
from benchmarks.stack import Stack

CALLERS = (1, 4, 16)
# A bare interpreter that forks, lets the child exit and waits for it, again and again.
FORKER = """
import os, sys, time
count, began = 0, time.perf_counter()
while (span := time.perf_counter() - began) < float(sys.argv[1]):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    count += 1
print(count / span)
"""


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


def bare_forks_per_second(span: float, at_once: int) -> float:
    """What ``at_once`` bare interpreters fork together: the bound on one fresh process per call."""
    command = [sys.executable, "-I", "-S", "-c", FORKER, str(span)]
    forkers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(at_once)]
    return sum(float(forker.communicate()[0]) for forker in forkers)


def measure(stack: Stack, *, rounds: int, span: float) -> Table:
    """Callers and forkers run alternately, ``span`` seconds each a round; medians."""
    cores = len(os.sched_getaffinity(0))
    forks: dict[int, list[float]] = {at_once: [] for at_once in sorted({1, cores})}
    calls: dict[int, list[float]] = {callers: [] for callers in CALLERS}
    for _ in range(rounds):
        for at_once, rates in forks.items():
            rates.append(bare_forks_per_second(span, at_once))
        for callers, rates in calls.items():
            rates.append(calls_per_second(lambda: http_round_trip(stack), callers, span))
    bound = statistics.median(forks[cores])
    table = Table("Per second, one worker", ["", "a second", f": bare forks by {cores}"])
    for at_once, rates in forks.items():
        rate = statistics.median(rates)
        forkers = "one interpreter" if at_once == 1 else f"{at_once} interpreters"
        table.rows.append([f"bare forks by {forkers}", f"{rate:.0f}", f"{rate / bound:.2f}"])
    for callers, rates in calls.items():
        rate = statistics.median(rates)
        name = f"no-op calls by {callers} caller{'s' if callers > 1 else ''}"
        table.rows.append([name, f"{rate:.0f}", f"{rate / bound:.2f}"])
    table.remarks.append(
        "- Each call has a fresh process, so forks bound calls. A bare fork is of an interpreter that "
        "has imported nothing, its child exits at once. The callers' own processor time, on the same "
        "cores, is part of what calls have to share.\n"
    )
    return table
