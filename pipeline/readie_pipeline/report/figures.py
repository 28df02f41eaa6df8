"""The plots of a report, as SVG that takes its colours from the page around it."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from readie_pipeline.report.coverage import Start

_WIDTH = 5.4  # inches: small, so that letters are still read where a phone shrinks the whole
_HEIGHT = 3.3
_ROW = 0.34  # inches that one row of a chart by checkpoint takes
MOST = 24  # checkpoints that are named in a figure; more would be a smear, or a very long page

# Drawn in these, shown in the custom properties of page.css, which know light, dark and print.
_INK, _FAINT, _MEASURED, _PLANNED = "#010203", "#010204", "#010205", "#010206"
_PROPERTIES = {
    _INK: "var(--ink)",
    _FAINT: "var(--rule)",
    _MEASURED: "var(--measured)",
    _PLANNED: "var(--planned)",
}
# matplotlib types the keys of such a mapping one by one.
_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.size": 11.0,
    "svg.fonttype": "none",
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _FAINT,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _FAINT,
    "legend.frameon": False,
}


@dataclass(frozen=True, slots=True)
class Restore:
    """One checkpoint's size in MB and its restore in seconds, as planned and as measured."""

    id: str
    size_mb: float
    planned_s: float
    measured_s: float

    @property
    def label(self) -> str:
        return self.id.removeprefix("checkpoint_")


@dataclass(frozen=True, slots=True)
class Line:
    """``floor_s`` seconds that any restore takes, and ``alpha`` more for each MB."""

    alpha: float
    floor_s: float

    def at(self, size_mb: float) -> float:
        return self.floor_s + self.alpha * size_mb


def restores_by_size(restores: Sequence[Restore], fitted: Line | None, planned: Line) -> str:
    """Each measured restore with the line through them, where there is one, and the planned one."""
    largest = max((one.size_mb for one in restores), default=0.0)
    with rc_context(_SETTINGS):
        figure, axes = _axes(_HEIGHT, "memory of the checkpoint (MB)", "restore (s)")
        if fitted is not None:
            _draw(axes, fitted, largest, color=_MEASURED, label="fitted")
        _draw(axes, planned, largest, color=_PLANNED, linestyle="--", label="planned")
        sizes = [one.size_mb for one in restores]
        times = [one.measured_s for one in restores]
        axes.scatter(sizes, times, color=_MEASURED, zorder=3, label="measured")
        for one in restores if len(restores) <= MOST else ():
            place = (one.size_mb, one.measured_s)
            axes.annotate(one.label, place, (5, 4), textcoords="offset points", parse_math=False)
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
        axes.legend(loc="upper left")
        return _svg(figure, _told(restores))


def planned_against_measured(restores: Sequence[Restore]) -> str:
    """A row for each checkpoint, the smallest on top: hollow is planned, full is measured.

    Of more than `MOST`, those that were planned worst.
    """
    worst = sorted(restores, key=lambda one: -abs(one.measured_s - one.planned_s))[:MOST]
    ordered = sorted(worst, key=lambda one: (-one.size_mb, one.id))
    rows = range(len(ordered))
    planned = [one.planned_s for one in ordered]
    measured = [one.measured_s for one in ordered]
    with rc_context(_SETTINGS):
        figure, axes = _axes(1.1 + _ROW * len(ordered), "restore (s)", "")
        axes.hlines(rows, planned, measured, color=_FAINT, linewidth=2)
        axes.scatter(planned, rows, facecolors="none", edgecolors=_PLANNED, label="planned")
        axes.scatter(measured, rows, color=_MEASURED, label="measured", zorder=3)
        axes.set_yticks(rows, [one.id for one in ordered], parse_math=False)
        axes.set_xlim(left=0)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        return _svg(figure, _told(ordered))


def starts_by_share(starts: Sequence[Start]) -> str:
    """For each time, the share of workloads whose own code runs by then."""
    with rc_context(_SETTINGS):
        figure, axes = _axes(_HEIGHT, "start until the workload's own code runs (s)", "workloads")
        counts = [one.count for one in starts]
        for label, color, times in (
            ("with checkpoints", _MEASURED, [one.chosen_s for one in starts]),
            ("cold", _PLANNED, [one.cold_s for one in starts]),
        ):
            axes.ecdf(times, counts, color=color, label=label, linewidth=2)
        axes.set_xlim(left=0)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.legend(loc="lower right")
        return _svg(
            figure, "How many workloads have started after how long, cold and with checkpoints"
        )


def _draw(axes: Axes, line: Line, largest: float, **style: Any) -> None:
    axes.plot([0, largest], [line.at(0), line.at(largest)], **style)


def _told(restores: Sequence[Restore]) -> str:
    """The figure in words, for those who hear the page."""
    if len(restores) > MOST:
        times = sorted(one.measured_s for one in restores)
        return f"{len(times)} restores, which take {times[0]:.2f} to {times[-1]:.2f} s"
    each = (
        f"{one.id}, {one.size_mb:.0f} MB: planned {one.planned_s:.2f} s, measured {one.measured_s:.2f} s"
        for one in restores
    )
    return f"Restores. {'; '.join(each)}"


def _axes(height: float, x_label: str, y_label: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _svg(figure: Figure, description: str) -> str:
    text = io.StringIO()
    # Without a date, and with names that are not drawn by lot, the same numbers give the same page.
    with rc_context({"svg.hashsalt": description}):
        figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    drawing = text.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    # Several drawings share a page, where an id may stand once. Nothing refers to those of groups.
    drawing = re.sub(r'<g id="[^"]*">', "<g>", drawing)
    for colour, custom_property in _PROPERTIES.items():
        drawing = drawing.replace(colour, custom_property)
    return drawing.replace("<svg ", f'<svg role="img" aria-label="{escape(description)}" ', 1)
