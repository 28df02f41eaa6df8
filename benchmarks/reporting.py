"""The written result: one Markdown page of tables, one JSON file of raw figures."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measuring import Series

RESULTS = Path(__file__).parent / "results"


@dataclass(slots=True)
class Table:
    """One table: a title, column heads, rows of text, and remarks below it."""

    title: str
    heads: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def to_markdown(self) -> str:
        lines = [f"## {self.title}", "", _row(self.heads), _row(["---"] * len(self.heads))]
        lines += [_row(row) for row in self.rows]
        lines += ["", *self.remarks] if self.remarks else []
        return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"


def latency_table(title: str, series: Sequence[Series], base: str) -> Table:
    """Median, p99 and the ratio of medians to the contestant named ``base``."""
    reference = next(item for item in series if item.name == base).median
    table = Table(title, ["", "runs", "p50 ms", "p99 ms", f"p50 : {base}"])
    for item in series:
        table.rows.append(
            [
                item.name,
                str(len(item.seconds)),
                milliseconds(item.median),
                milliseconds(item.percentile(0.99)),
                f"{item.median / reference:.2f}",
            ]
        )
    return table


def write(
    tables: Sequence[Table],
    raw: Mapping[str, Sequence[Series]],
    *,
    load: float,
    name: str = "latest",
) -> Path:
    """Write ``results/{name}.md`` and its raw figures; returns the page's path.

    ``load`` is the load average before anything of ours ran: other work makes times longer.
    """
    RESULTS.mkdir(exist_ok=True)
    about = (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.system()} {platform.machine()}, "
        f"{len(os.sched_getaffinity(0))} cores, CPython {platform.python_version()}. Load average before "
        f"the run: {load:.1f}{_priority()}. Contestants of a table ran alternately."
    )
    page = RESULTS / f"{name}.md"
    page.write_text(f"# Benchmarks\n\n{about}\n\n" + "\n".join(t.to_markdown() for t in tables))
    figures = {
        title: {item.name: [round(value, 7) for value in item.seconds] for item in series}
        for title, series in raw.items()
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")
    return page


def _priority() -> str:
    """Said where it was used, since it hides other work on the machine."""
    if os.sched_getscheduler(0) == os.SCHED_OTHER:
        return ""
    return "; everything measured had real-time priority over other work"
