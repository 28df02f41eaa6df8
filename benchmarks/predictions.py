"""``python -m benchmarks.predictions``: predicted starts held against measured ones, on real import sets.

The committed corpus says what calls import, the committed measurements what to capture. Each set whose
packages are here runs on a running Readie, behind the checkpoint that was chosen and cold.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measuring import Series
from benchmarks.reporting import Table, write
from benchmarks.stack import Stack, running
from readie._locality import Origin, locate
from readie_worker.sandbox.selftest import find_runsc

ROOT = Path(__file__).parent.parent
DATA = ROOT / "pipeline" / "data"
CORPUS = DATA / "datasets" / "cpu.json"
SEED = 20_261_129
READY_S = 120.0
CALL_S = 120.0


@dataclass(slots=True)
class Held:
    """One import set: how often the corpus has it, and its starts by how they were made."""

    imports: tuple[str, ...]
    weight: int
    starts: list["Start"] = field(default_factory=list)

    def measured(self, *, cold: bool) -> float:
        """The median of its cold starts, or of those that were chosen."""
        return statistics.median(one.measured_s for one in self.starts if one.asked_cold is cold)


@dataclass(frozen=True, slots=True)
class Start:
    """One call. Times in seconds; ``price_s`` and ``cold_price_s`` are what the choice compared."""

    asked_cold: bool
    kind: str
    predicted_s: float
    measured_s: float
    cold_predicted_s: float
    price_s: float
    cold_price_s: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predictions", description=__doc__)
    parser.add_argument(
        "import_sets",
        nargs="?",
        type=Path,
        default=CORPUS,
        help='a corpus, or a file of {"imports": […]} lines',
    )
    parser.add_argument("--runtime", choices=["fork", "gvisor"], action="append")
    parser.add_argument("--sets", type=int, default=16, help="distinct import sets")
    parser.add_argument("--rounds", type=int, default=1, help="calls of each set, of both kinds")
    parser.add_argument("--checkpoints", type=int, default=5, help="to capture, at most")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    os.environ["READIE_SPARES"] = "0"  # a prediction is of a start, not of a sandbox made ahead
    sets = sample(read_sets(options.import_sets), options.sets)
    tables, raw = [], {}
    for runtime in options.runtime or (["fork", "gvisor"] if find_runsc() else ["fork"]):
        with tempfile.TemporaryDirectory(prefix="rd-") as folder:
            generation = Path(folder) / "cpu"
            capture_planned(generation, runtime, options.checkpoints)
            with running(generation, runtime=runtime) as stack:
                wait_until_held(stack, generation)
                held = [Held(imports, weight) for imports, weight in sets]
                kept = hold(stack, held, options.rounds)
        tables += [accuracy_table(runtime, kept), savings_table(runtime, kept)]
        raw[f"{runtime}: predicted minus measured"] = [
            Series(kind, [one.predicted_s - one.measured_s for one in starts])
            for kind, starts in by_kind(kept).items()
        ]
    page = write(tables, raw, load=load, name="predictions")
    print(page.read_text())


def read_sets(path: Path) -> Counter[tuple[str, ...]]:
    """How often each import set is there, of those whose packages are all installed here."""
    text = path.read_text()
    if path.suffix == ".json":
        found = [item["resources"]["packages"] for item in json.loads(text)["items"]]
        counted = [(names, 1) for names in found]
    else:
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        counted = [(line["imports"], line.get("count", 1)) for line in lines]
    sets: Counter[tuple[str, ...]] = Counter()
    for names, count in counted:
        if names and all(locate(name).origin is Origin.INSTALLED for name in names):
            sets[tuple(sorted(names))] += count
    if not sets:
        raise SystemExit(f"of no import set in {path} are all packages installed here")
    return sets


def sample(sets: Counter[tuple[str, ...]], count: int) -> Sequence[tuple[tuple[str, ...], int]]:
    """Distinct sets, the frequent ones more likely; the same each time."""
    chance = random.Random(SEED)
    keyed = sorted(sets.items(), key=lambda one: chance.random() ** (1 / one[1]), reverse=True)
    return keyed[:count]


def capture_planned(out: Path, runtime: str, checkpoints: int) -> None:
    command = [sys.executable, "-m", "readie_pipeline", "capture", "--data", str(DATA)]
    command += ["--runtime", runtime, "--out", str(out), "--max-checkpoints", str(checkpoints)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def wait_until_held(stack: Stack, generation: Path) -> None:
    """Until every checkpoint can be restored and is priced."""
    manifest = json.loads((generation / "manifest.json").read_bytes())
    wanted = {one["id"] for one in manifest["checkpoints"]}
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        for held in ask(stack, "/v1/generations")["generations"]:
            if held["priced"] and wanted <= set(held["checkpoints"]):
                return
        time.sleep(0.2)
    raise SystemExit(f"the worker did not take up all checkpoints within {READY_S:.0f} s")


def ask(stack: Stack, path: str, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {stack.token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(stack.url + path, data, headers)
    with urllib.request.urlopen(request, timeout=CALL_S) as answer:
        return json.load(answer)


def hold(stack: Stack, sets: Sequence[Held], rounds: int) -> Sequence[Held]:
    """Run every set, chosen and cold by turns; those that fail to import are left out."""
    kept = list(sets)
    for asked_cold in (False, True):  # pages of the packages' files come from the disk only once
        kept = [one for one in kept if start(stack, one.imports, asked_cold) is not None]
    for _ in range(rounds):
        for one in kept:
            for asked_cold in (False, True):
                if (found := start(stack, one.imports, asked_cold)) is not None:
                    one.starts.append(found)
    return [one for one in kept if len(one.starts) == 2 * rounds]


def start(stack: Stack, imports: Iterable[str], asked_cold: bool) -> Start | None:
    source = "".join(f"import {name}\n" for name in imports)
    options = {"disable_optimized_execution": asked_cold, "memory": "4G"}
    answer = ask(stack, "/v1/invoke", {"source": source, "options": options})
    if not answer.get("ok"):
        print(f"left out {', '.join(imports)}: {answer.get('error')}", file=sys.stderr)
        return None
    receipt = answer["receipt"]
    choice = ask(stack, f"/v1/calls/{answer['call_id']}")["choice"]
    return Start(
        asked_cold=asked_cold,
        kind=receipt["start_kind"],
        predicted_s=receipt["predicted_start_ms"] / 1000,
        measured_s=receipt["measured_start_ms"] / 1000,
        cold_predicted_s=choice["cold_start_s"],
        price_s=choice["predicted_s"],
        cold_price_s=choice["cold_s"],
    )


def by_kind(sets: Iterable[Held]) -> dict[str, list[Start]]:
    found: dict[str, list[Start]] = {}
    for one in sets:
        for each in one.starts:
            found.setdefault(each.kind, []).append(each)
    return found


def accuracy_table(runtime: str, sets: Sequence[Held]) -> Table:
    table = Table(
        f"{runtime}: predicted against measured starts of {len(sets)} real import sets",
        ["start", "calls", "predicted s", "measured s", "median absolute error s", "relative"],
    )
    for kind, starts in by_kind(sets).items():
        errors = [abs(one.predicted_s - one.measured_s) for one in starts]
        relative = [error / one.measured_s for error, one in zip(errors, starts, strict=True)]
        table.rows.append(
            [
                kind,
                str(len(starts)),
                f"{statistics.median(one.predicted_s for one in starts):.3f}",
                f"{statistics.median(one.measured_s for one in starts):.3f}",
                f"{statistics.median(errors):.3f}",
                f"{statistics.median(relative):.0%}",
            ]
        )
    table.remarks.append("Predicted and measured are medians; each has what any start costs in it.")
    return table


def savings_table(runtime: str, sets: Sequence[Held]) -> Table:
    """Each set counts as often as the corpus has it."""
    chosen = [(one.weight, start) for one in sets for start in one.starts if not start.asked_cold]
    cold_s = sum(one.weight * one.measured(cold=True) for one in sets)
    chosen_s = sum(one.weight * one.measured(cold=False) for one in sets)
    expected_cold_s = sum(weight * start.cold_predicted_s for weight, start in chosen)
    expected_s = sum(weight * start.predicted_s for weight, start in chosen)
    slower = sum(one.measured(cold=False) > one.measured(cold=True) for one in sets)
    table = Table(f"{runtime}: what checkpoints save of cold starts", ["", ""])
    table.rows += [
        ["share saved, measured", f"{1 - chosen_s / cold_s:.1%}"],
        ["share saved, predicted", f"{1 - expected_s / expected_cold_s:.1%}"],
        [
            "calls priced above their cold start",
            str(sum(start.price_s > start.cold_price_s for _, start in chosen)),
        ],
        [
            "calls predicted to start later than cold",
            str(sum(start.predicted_s > start.cold_predicted_s for _, start in chosen)),
        ],
        ["sets that started later than cold", str(slower)],
    ]
    return table


if __name__ == "__main__":
    main()
