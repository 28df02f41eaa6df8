"""``python -m benchmarks.planner``: a plan over 5,000 packages and 10,000 requests, and what memory buys.

The large corpus is made from real import sets, the same one each time: the environment that was measured
stands side by side in as many copies as it takes, and a request joins one to three real sets of one copy.
A fresh process plans it. What memory buys is asked of the real import sets themselves.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.measuring import Series
from benchmarks.reporting import Table, write
from readie_pipeline.corpus.dataset import load_dataset
from readie_pipeline.measure.metadata import Measurement, Metadata, load_metadata
from readie_pipeline.plan.costs import Budget
from readie_pipeline.plan.planning import Planned, plan_corpus

SEED = 20_261_129
DATA = Path(__file__).parent.parent / "pipeline" / "data"
ALPHA = 0.002  # seconds per MB, what planning starts from
BUDGETS_MB = (256, 512, 1_024, 2_048, 4_096)
NO_LIMIT = 1_000  # checkpoints, where memory alone is to decide
MIB = 1 << 20

Requests = Sequence[Sequence[str]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner", description=__doc__)
    parser.add_argument("--packages", type=int, default=5_000)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--import-sets", type=Path, help='lines of {"imports": […]} instead of the corpus'
    )
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sets = real_sets(options.import_sets)
    metadata = load_metadata((DATA / "metadata" / "cpu.json").read_bytes())
    if options.once:
        print(json.dumps(measure(*made_up(sets, metadata, options.packages, options.requests))))
        return
    load = os.getloadavg()[0]
    runs = [measured_apart(sys.argv[1:]) for _ in range(options.runs)]
    title = f"A plan over {options.packages:,} packages and {options.requests:,} requests"
    raw = {title: [Series(name, [run[name] for run in runs]) for name in ("wall_s", "cpu_s")]}
    tables = [planning_table(title, runs), buying_table(sets, metadata)]
    page = write(tables, raw, load=load, name="planner")
    print(page.read_text())


def real_sets(path: Path | None) -> Requests:
    if path is None:
        return load_dataset((DATA / "datasets" / "cpu.json").read_bytes()).requests()
    return [json.loads(line)["imports"] for line in path.read_text().splitlines()]


def made_up(
    sets: Requests, metadata: Metadata, packages: int, requests: int
) -> tuple[Requests, Metadata]:
    """Packages that nobody has measured cost what some measured one does."""
    chance = random.Random(SEED)
    measured = sorted(metadata.items)
    names = sorted({name for one in sets for name in one}.union(measured))
    copies = -(-packages // len(names))
    items: dict[str, Measurement] = {}
    for copy in range(copies):
        for name in names[: packages - len(items)]:
            like = metadata.items[name if name in metadata.items else chance.choice(measured)]
            needs = tuple(renamed(other, copy) for other in like.dependencies if other != name)
            items[renamed(name, copy)] = replace(like, dependencies=needs, modules=())
    popularity = [1 / (copy + 1) for copy in range(copies)]
    asked = []
    for _ in range(requests):
        [copy] = chance.choices(range(copies), popularity)
        joined = {name for _ in range(chance.choice((1, 1, 2, 3))) for name in chance.choice(sets)}
        asked.append([renamed(name, copy) for name in sorted(joined)])
    return asked, Metadata(metadata.python, items)


def renamed(name: str, copy: int) -> str:
    """``numpy.linalg`` of the third environment is ``numpy_3.linalg``."""
    top, dot, rest = name.partition(".")
    return f"{top}_{copy}{dot}{rest}"


def measured_apart(arguments: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.planner", *arguments, "--once"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(requests: Requests, metadata: Metadata) -> Mapping[str, Any]:
    before = memory("VmRSS")
    began, used = time.perf_counter(), time.process_time()
    made = plan(requests, metadata, Budget())
    return {
        "wall_s": time.perf_counter() - began,
        "cpu_s": time.process_time() - used,
        "before": before,
        "peak": memory("VmHWM"),
        "items": len(made.demand.items),
        "sets": len(made.demand.sets),
        "checkpoints": len(made.plan.entries),
        "saved": share(made, made.total_s),
        "possible": share(made, made.bound.total_s),
        "gap": made.gap,
    }


def memory(field: str) -> int:
    """A field of this process's status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def plan(requests: Requests, metadata: Metadata, budget: Budget) -> Planned:
    return plan_corpus(
        requests, metadata, planner="greedy", flavor="cpu", alpha=ALPHA, budget=budget
    )


def share(made: Planned, total_s: float) -> float:
    return (made.cold_s - total_s) / made.cold_s


def planning_table(title: str, runs: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        title,
        [
            "run",
            "wall s",
            "processor s",
            "peak RSS MB",
            "of it before",
            "checkpoints",
            "saved",
            "gap",
        ],
    )
    for number, run in enumerate(runs, start=1):
        table.rows.append(
            [
                str(number),
                f"{run['wall_s']:.2f}",
                f"{run['cpu_s']:.2f}",
                f"{run['peak'] / MIB:.0f}",
                f"{run['before'] / MIB:.0f}",
                str(run["checkpoints"]),
                f"{run['saved']:.1%}",
                f"{run['gap']:.1%}",
            ]
        )
    first = runs[0]
    table.remarks.append(
        f"- {first['items']:,} of the packages are needed by at least 0.2 % of the requests, which ask for "
        f"{first['sets']:,} distinct sets of them.\n"
        f"- *gap*: at most this share of what any plan could save is missed. No plan saves more than "
        f"{first['possible']:.1%}.\n"
    )
    return table


def buying_table(sets: Requests, metadata: Metadata) -> Table:
    """The number of checkpoints is not limited here: memory alone decides."""
    table = Table(
        f"What memory buys, over {len(sets):,} real import sets",
        ["budget MB", "used MB", "checkpoints", "start-up saved", "per 100 MB used", "bound"],
    )
    for size_mb in BUDGETS_MB:
        made = plan(sets, metadata, Budget(NO_LIMIT, size_mb))
        used_mb = sum(entry.size_mb for entry in made.plan.entries)
        saved = share(made, made.total_s)
        table.rows.append(
            [
                f"{size_mb:,}",
                f"{used_mb:,.0f}",
                str(len(made.plan.entries)),
                f"{saved:.1%}",
                f"{saved / used_mb * 100:.1%}" if used_mb else "",
                f"{share(made, made.bound.total_s):.1%}",
            ]
        )
    table.remarks.append(
        f"- Greedy plans at {ALPHA} s per MB. *start-up saved*: of the seconds that all workloads together take "
        "to import what is measured, less what the sizes cost. No plan within the budget saves more than "
        "*bound*.\n"
    )
    return table


if __name__ == "__main__":
    main()
