"""The plots of a report, as SVG text."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_SIZE = (7.0, 3.6)  # inches
_POINT = "#1f6feb"
_LINE = "#d9480f"


@dataclass(frozen=True, slots=True)
class Restore:
    """One checkpoint's size in MB and measured restore in seconds."""

    id: str
    size_mb: float
    seconds: float


def restores_by_size(restores: Sequence[Restore], alpha: float, floor_s: float) -> str:
    """Each measured restore, and the line that the catalogue's alpha draws."""
    figure, axes = _axes("MB", "restore, s")
    axes.scatter([one.size_mb for one in restores], [one.seconds for one in restores], color=_POINT)
    for one in restores:
        label = one.id.removeprefix("checkpoint_")
        axes.annotate(label, (one.size_mb, one.seconds), (4, 4), textcoords="offset points")
    largest = max((one.size_mb for one in restores), default=0.0)
    axes.plot([0, largest], [floor_s, floor_s + alpha * largest], color=_LINE)
    axes.set_ylim(bottom=0)
    return _svg(figure, "restore time against size")


def bars(values: Mapping[str, float], unit: str, title: str) -> str:
    """Horizontal bars in the order given, the first one on top."""
    figure, axes = _axes(unit, "")
    names = list(values)[::-1]
    axes.barh(names, [values[name] for name in names], color=_POINT)
    return _svg(figure, title)


def _axes(x_label: str, y_label: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.3)
    return figure, axes


def _svg(figure: Figure, title: str) -> str:
    text = io.StringIO()
    # Without a date, and with names that are not drawn by lot, the same numbers give the same page.
    with rc_context({"svg.hashsalt": title}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Title": title})
    drawing = text.getvalue()
    return drawing[drawing.index("<svg") :]
