"""``python -m benchmarks.first_result``: from nothing running to the first result of a pandas function.

What a person waits for who types ``readie up`` with a generation there and calls a function as soon as
it says that it runs; and how long ``import readie`` keeps a script.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import readie
from benchmarks.measuring import Contestant, Series, alternate
from benchmarks.reporting import Table, latency_table, milliseconds, write
from benchmarks.stack import capture
from benchmarks.starts import pandas_sum
from readie_worker.sandbox.selftest import find_runsc

IMPORT = "import readie"
POLL_S = 0.01
BARE = "a fresh interpreter alone"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_result", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="starts of each runtime")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    runtimes = ["fork"]
    if os.geteuid() == 0 and find_runsc() is not None:
        runtimes.append("gvisor")
    with tempfile.TemporaryDirectory(prefix="readie-bench-first-") as folder:
        started, kinds = _starts(Path(folder), runtimes, options.rounds)
    title = "From `readie up` on a stopped machine to the first result of a pandas function"
    starts = Table(title, ["runtime", "runs", "p50 s", "slowest s", "how the call started"])
    for one in started:
        starts.rows.append(
            [
                one.name,
                str(len(one.seconds)),
                f"{one.median:.2f}",
                f"{max(one.seconds):.2f}",
                ", ".join(sorted(kinds[one.name])),
            ]
        )
    imports = _imports(options.rounds)
    added = imports[1].median - imports[0].median
    table = latency_table("`import readie` in a fresh interpreter", imports, BARE)
    table.remarks.append(f"The import itself takes {milliseconds(added)} ms.")
    raw = {title: started, table.title: imports}
    page = write([starts, table], raw, load=load, name="first_result")
    print(page.read_text())
    print(f"written to {page}")


def _starts(
    folder: Path, runtimes: Sequence[str], rounds: int
) -> tuple[list[Series], dict[str, set[str]]]:
    """Seconds of each start, by runtime in turns, and how its call was started."""
    for runtime in runtimes:
        capture(folder / runtime, ["numpy,pandas"], runtime=runtime)
    times: dict[str, list[float]] = {runtime: [] for runtime in runtimes}
    kinds: dict[str, set[str]] = {runtime: set() for runtime in runtimes}
    for _ in range(rounds):
        for runtime in runtimes:
            began = time.perf_counter()
            with _announced(folder / runtime, runtime) as client:
                readie.remote(pandas_sum).bind(client=client)()
                times[runtime].append(time.perf_counter() - began)
                receipt = readie.last_receipt()
                kinds[runtime].add(str(receipt.start_kind) if receipt else "unknown")
    return [Series(runtime, taken) for runtime, taken in times.items()], kinds


@contextmanager
def _announced(generation: Path, runtime: str) -> Iterator[readie.Client]:
    """``readie up`` with a data folder of its own, once it lets clients find it; ended with the block."""
    with tempfile.TemporaryDirectory(prefix="readie-bench-") as folder:
        command = [sys.executable, "-m", "readie", "up", "--port", "0", "--data-dir", folder]
        with subprocess.Popen(
            [*command, "--generations", str(generation), "--runtime", runtime],
            env={**os.environ, "READIE_DATA_DIR": folder},
            stdout=subprocess.DEVNULL,
        ) as process:
            try:
                note = Path(folder) / "service.json"
                while not note.exists():
                    if process.poll() is not None:
                        raise SystemExit(f"readie up ended with status {process.returncode}")
                    time.sleep(POLL_S)
                token = (Path(folder) / "token").read_text().strip()
                with readie.Client(json.loads(note.read_text())["url"], token) as client:
                    yield client
            finally:
                process.send_signal(signal.SIGINT)


def _imports(rounds: int) -> list[Series]:
    def interpreter(program: str) -> Contestant:
        command = [sys.executable, "-c", program]
        name = BARE if program == "pass" else IMPORT
        return Contestant(name, lambda: subprocess.run(command, check=True))

    return alternate(
        [interpreter("pass"), interpreter("import readie")], rounds=rounds, per_round=4
    )


if __name__ == "__main__":
    main()
