"""``python -m benchmarks.catalogue``: a gateway that loads a catalogue of 5,000 items in 400 MB.

The file is made the same each time. A fresh process loads it as the gateway does, while a ticker on its
event loop tells how long anything else would have waited, and prices calls with it afterwards.
"""

import argparse
import asyncio
import gc
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.measuring import Series
from benchmarks.reporting import Table, write
from readie_gateway.catalogues import Catalogues
from readie_gateway.fleet import PricedGeneration
from readie_wire.eligibility import CallFacts, eligible
from readie_wire.records import GenerationFacts

SEED = 20_261_129
MIB = 1 << 20
TICK_S = 0.001
CHECKPOINTS = 101
SETTLE_S = 1.0  # after loading: what was only needed for it is given back
WORDS = (
    "analysis",
    "bindings",
    "distributed",
    "handlers",
    "internal",
    "metrics",
    "pipeline",
    "services",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catalogue", description=__doc__)
    parser.add_argument("--items", type=int, default=5_000)
    parser.add_argument("--megabytes", type=int, default=400, help="size of the file, about")
    parser.add_argument("--calls", type=int, default=2_000, help="calls to price")
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load is not None:
        print(json.dumps(uvloop.run(measure(options.load, options.calls))))
        return
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="readie-bench-catalogue-") as name:
        path = Path(name) / "cpu.json"
        make(path, options.items, options.megabytes * MIB)
        found = measured_apart(path, options.calls)
        size = path.stat().st_size
    title = f"A catalogue of {options.items} items in {size / MIB:.0f} MiB, loaded by a gateway"
    raw = {title: [Series(name, found[name]) for name in ("waits", "first", "again")]}
    page = write(
        [loading_table(title, found), pricing_table(found)], raw, load=load, name="catalogue"
    )
    print(page.read_text())


def make(path: Path, items: int, size: int) -> None:
    """Write the file: real ones list for each package everything that importing it loads."""
    chance = random.Random(SEED)
    names = list(module_names(chance, items))
    quoted = [json.dumps(name) for name in names]
    # Every item depends on a share of those before it: half of items squared is all there could be.
    share = min(1.0, size / (sum(map(len, quoted)) / items + 2) / (items * items / 2))
    with path.open("w") as file:
        file.write(
            '{"version": 2, "flavor": "cpu", "alpha": 0.0019, "distributions": {},\n"items": {\n'
        )
        for number, name in enumerate(quoted):
            needs = ", ".join(chance.sample(quoted[:number], round(number * share)))
            distribution = json.dumps(names[number].partition(".")[0])
            file.write(
                f'{name}: {{"load_time": {chance.expovariate(20):.6f}, '
                f'"size_mb": {chance.expovariate(0.5):.3f}, "resource_type": "package", '
                f'"distribution": {distribution}, "dependencies": [{needs}]}}'
            )
            file.write(",\n" if number + 1 < items else "\n")
        file.write('},\n"checkpoints": [\n')
        entries = []
        for number in range(CHECKPOINTS):
            held = chance.sample(range(items), chance.randint(1, 4)) if number else []
            inside = sorted({other for one in held for other in range(max(0, one - 400), one + 1)})
            entry = {
                "id": f"checkpoint_{number}",
                "items": [names[one] for one in inside],
                "canonical": [names[one] for one in held],
                "size_mb": round(2.0 * len(inside), 3),
            }
            entries.append(json.dumps(entry))
        file.write(",\n".join(entries) + "\n]}\n")


def module_names(chance: random.Random, count: int) -> Iterator[str]:
    """Dotted names as deep and long as those of cloud libraries."""
    seen: set[str] = set()
    while len(seen) < count:
        depth = chance.randint(2, 5)
        name = f"package{chance.randrange(600):03}." + ".".join(chance.choices(WORDS, k=depth))
        if name not in seen:
            seen.add(name)
            yield name


def measured_apart(path: Path, calls: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.catalogue", "--load", str(path)]
    done = subprocess.run(
        [*command, "--calls", str(calls)], check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


async def measure(path: Path, calls: int) -> dict[str, Any]:
    """What loading costs this process, and what pricing takes then. Times in seconds."""
    gc.collect()
    gc.freeze()  # as a gateway does once it has started
    before = memory("VmRSS")
    catalogues = Catalogues(folder=path.parent)
    waits: list[float] = []
    ticking = asyncio.create_task(tick(waits))
    began = time.perf_counter()
    await catalogues.refresh()
    loaded_s = time.perf_counter() - began
    ticking.cancel()
    if not catalogues.loaded:
        raise SystemExit(f"the catalogue was not loaded: {catalogues.skipped}")
    gc.collect()
    await asyncio.sleep(SETTLE_S)
    settled = memory("VmRSS")
    first, again = price(catalogues, calls)
    return {
        "loaded_s": loaded_s,
        "cpu_s": sum(os.times()[:4]),
        "before": before,
        "peak": memory("VmHWM"),
        "children": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        "settled": settled,
        "priced": memory("VmRSS"),
        "waits": waits,
        "first": first,
        "again": again,
    }


async def tick(waits: list[float]) -> None:
    """How much later than asked for the event loop comes back, again and again."""
    while True:
        began = time.perf_counter()
        await asyncio.sleep(TICK_S)
        waits.append(max(0.0, time.perf_counter() - began - TICK_S))


def price(catalogues: Catalogues, calls: int) -> tuple[list[float], list[float]]:
    """Seconds for each call that is priced for the first time, and for the same once more."""
    (loaded,) = catalogues.loaded
    ids = tuple(one.id for one in loaded.priced.catalogue.checkpoints)
    facts = GenerationFacts("20260101T000000-0123abcd", loaded.sha256, ids, "3.11.7", "gvisor")
    generation = PricedGeneration(facts, loaded, 1)
    chance = random.Random(SEED)
    names = list(loaded.priced.catalogue.items)
    sets = [import_set(chance, names) for _ in range(calls)]
    call = CallFacts(environment=frozenset({"TZ"}), memory=8 << 30)

    def choose(imports: tuple[str, ...]) -> float:
        began = time.perf_counter()
        generation.priced.choose(
            generation.items_of(imports), lambda one: eligible(call, generation.checkpoints[one])
        )
        return time.perf_counter() - began

    return [choose(imports) for imports in sets], [choose(imports) for imports in sets]


def import_set(chance: random.Random, names: Sequence[str]) -> tuple[str, ...]:
    """As real ones: a few modules, the popular more often, now and then one that nobody measured."""
    count = min(40, 1 + int(chance.expovariate(0.2)))
    found = {names[int(len(names) * chance.random() ** 2)] for _ in range(count)}
    found |= {f"{name}.part" for name in found if chance.random() < 0.3}
    if chance.random() < 0.2:
        found.add("unheard_of.module")
    return tuple(sorted(found))


def memory(field: str) -> int:
    """Bytes, of ``/proc/self/status``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


def loading_table(title: str, found: dict[str, Any]) -> Table:
    waits = Series("waits", found["waits"])
    table = Table(title, ["", ""])
    table.rows += [
        ["from the start of loading to the first price", f"{found['loaded_s']:.2f} s"],
        ["CPU", f"{found['cpu_s']:.2f} s"],
        ["memory before", f"{found['before'] / MIB:.0f} MiB"],
        ["peak", f"{found['peak'] / MIB:.0f} MiB"],
        ["peak of a child process", f"{found['children'] / MIB:.0f} MiB"],
        ["settled", f"{found['settled'] / MIB:.0f} MiB"],
        ["with all calls priced", f"{found['priced'] / MIB:.0f} MiB"],
        ["longest wait of the event loop meanwhile", f"{max(waits.seconds) * 1000:.1f} ms"],
        ["wait of the event loop, p99", f"{waits.percentile(0.99) * 1000:.1f} ms"],
        ["wait of the event loop, p50", f"{waits.median * 1000:.2f} ms"],
    ]
    return table


def pricing_table(found: dict[str, Any]) -> Table:
    table = Table("Pricing a call against 101 checkpoints", ["", "calls", "p50 µs", "p99 µs"])
    for what, key in (("a set seen for the first time", "first"), ("a set seen before", "again")):
        times = Series(what, found[key])
        table.rows.append(
            [
                what,
                str(len(times.seconds)),
                f"{times.median * 1e6:.1f}",
                f"{times.percentile(0.99) * 1e6:.1f}",
            ]
        )
    return table


if __name__ == "__main__":
    main()
