"""How soon a pandas function has run: Readie's forks against fresh interpreters."""

import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

import readie
from benchmarks.measuring import Contestant, Series, alternate
from benchmarks.reporting import Table, latency_table
from benchmarks.stack import Stack

FORKED = "Readie, behind its imports"
COLD = "Readie, cold"
PROGRAM = "import pandas; print(int(pandas.DataFrame({'a': [1, 2, 3]}).sum().a))"


def pandas_sum() -> int:
    """The function: small, so that starting is what is timed."""
    import pandas as pd  # here, because importing it is what is timed

    return int(pd.DataFrame({"a": [1, 2, 3]}).sum().a)


def fresh_interpreter() -> object:
    return subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True).stdout


def in_new_process(
    method: Literal["spawn", "forkserver"], preload: Sequence[str] = ()
) -> Callable[[], object]:
    """One process per call by ``multiprocessing``; its answer through a pipe."""
    context: Any = multiprocessing.get_context(method)
    if preload:
        context.set_forkserver_preload(list(preload))

    def call() -> object:
        queue = context.SimpleQueue()
        child = context.Process(target=_answer, args=(queue,))
        child.start()
        value = queue.get()
        child.join()
        return value

    return call


def _answer(queue: "multiprocessing.queues.SimpleQueue[int]") -> None:
    queue.put(pandas_sum())


def measure(stack: Stack, *, rounds: int) -> tuple[list[Table], dict[str, Sequence[Series]]]:
    readie.configure(url=stack.url, auth_token=stack.token)
    function = readie.remote(pandas_sum)
    cold = function.bind(disable_optimized_execution=True)
    contestants = [
        Contestant(FORKED, function),
        Contestant(COLD, cold),
        Contestant("fresh interpreter", fresh_interpreter),
        Contestant("multiprocessing spawn", in_new_process("spawn")),
        Contestant(
            "forkserver, pandas preloaded",
            in_new_process("forkserver", ["pandas", "benchmarks.starts"]),
        ),
    ]
    series = alternate(contestants, rounds=rounds, per_round=2)
    title = "A pandas function from request to result"
    return [latency_table(title, series, FORKED)], {title: series}
