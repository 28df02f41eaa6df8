"""``python -m benchmarks``: capture a generation, start Readie, measure, write the tables."""

import argparse
import os
import tempfile
from pathlib import Path

from benchmarks import processor_time, round_trip, starts, throughput
from benchmarks.reporting import write
from benchmarks.stack import capture, running


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="turns of each contestant")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a throughput run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="readie-bench-generation-") as folder:
        generation = Path(folder) / "cpu"
        capture(generation, ["numpy,pandas"])
        load = os.getloadavg()[0]
        with running(generation) as stack:
            tables, raw = round_trip.measure(stack, rounds=options.rounds)
            tables.append(processor_time.measure(stack, round_trip.http_round_trip(stack)))
            more, more_raw = starts.measure(stack, rounds=max(1, options.rounds // 2))
            tables += more
            rounds = max(1, options.rounds // 5)
            tables.append(throughput.measure(stack, rounds=rounds, span=options.seconds))
            raw.update(more_raw)
    page = write(tables, raw, load=load)
    print(page.read_text())
    print(f"written to {page}")


if __name__ == "__main__":
    main()
