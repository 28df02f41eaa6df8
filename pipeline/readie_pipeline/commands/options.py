"""Options that several commands share. The names of variables are those of the Makefile."""

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from readie_pipeline.distributing.queues import LOST_AFTER_S
from readie_pipeline.errors import PlanError
from readie_pipeline.plan.fixed import parse_imports
from readie_wire.catalogue import FLAVORS

# Seconds per MB that planning starts from; a capture measures the machine's own.
DEFAULT_ALPHA = 0.002


class ImportSet(click.ParamType[tuple[str, ...]]):
    """``numpy,pandas``: what one checkpoint imports, in order."""

    name = "MODULE,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        try:
            return parse_imports(value)
        except PlanError as error:
            self.fail(str(error), param, ctx)


class Positive(click.FloatRange):
    """Above 0; "inf" and "nan" are numbers too, but no sizes or times."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a number that can be reckoned with", param, ctx)
        return number


class AbsoluteFile(click.Path):
    """An existing file, by a path that holds in any folder. Links are kept: an environment's
    interpreter is one, and what it leads to belongs to no environment."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, exists=True, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        found: Path = super().convert(value, param, ctx)  # type: ignore[assignment] # its path_type
        return found.absolute()


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

flavor: Decorator = click.option(
    "--flavor", type=click.Choice(FLAVORS), default="cpu", envvar="FLAVOR", show_default=True
)
alpha: Decorator = click.option(
    "--alpha",
    type=Positive(),
    default=DEFAULT_ALPHA,
    envvar="READIE_ALPHA",
    show_default=True,
    help="Seconds per MB that size costs, until it is measured.",
)
timeout: Decorator = click.option(
    "--timeout",
    type=Positive(),
    default=120.0,
    show_default=True,
    help="Seconds that the import of one module may take.",
)
repeats: Decorator = click.option(
    "--repeats",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="Processes that measure each module; their median counts.",
)
out: Decorator = click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="The generation's folder. It is replaced whole, and only by a complete one.",
)
data: Decorator = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default="data",
    envvar="READIE_PIPELINE_DATA",
    show_default=True,
    help="Folder of the corpus (datasets/) and the measurements (metadata/).",
)
python: Decorator = click.option(
    "--python",
    type=AbsoluteFile(),
    default=sys.executable,
    help="The interpreter whose packages are meant.  [default: this one]",
)
planner: Decorator = click.option(
    "--planner",
    type=click.Choice(["greedy", "exact", "fixed"]),
    default="greedy",
    envvar="READIE_PLANNER",
    show_default=True,
    help="greedy and exact plan from the corpus, fixed takes --imports as they are.",
)
import_sets: Decorator = click.option(
    "--imports",
    "import_sets",
    type=ImportSet(),
    multiple=True,
    help="What one checkpoint imports, comma-separated; once for each (fixed planner).",
)
explain: Decorator = click.option(
    "--explain", is_flag=True, help="Show every round of the greedy planner."
)
max_checkpoints: Decorator = click.option(
    "--max-checkpoints",
    type=click.IntRange(1),
    default=15,
    envvar="READIE_MAX_CHECKPOINTS",
    show_default=True,
    help="The empty checkpoint comes on top.",
)
size_budget_mb: Decorator = click.option(
    "--size-budget-mb",
    type=Positive(),
    default=2048.0,
    envvar="READIE_SIZE_BUDGET_MB",
    show_default=True,
    help="Memory of all checkpoints together.",
)
plan_dir: Decorator = click.option(
    "--plan-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default="plan",
    envvar="PLAN_DIR",
    show_default=True,
    help="Folder of the plan: checkpoints.json, rootfs-requirements.txt and what belongs to them.",
)
save_plan: Decorator = click.option(
    "--save-plan",
    "plan_dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write the plan to this folder.",
)
rootfs: Decorator = click.option(
    "--rootfs",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default="/",
    show_default=True,
    help="Where checkpoints will run; what its build could not install is told and written down.",
)
queue: Decorator = click.option(
    "--queue",
    "queue_url",
    help="redis://…: let `readie-pipeline worker` processes do the work, not this one.",
)
lost_after: Decorator = click.option(
    "--lost-after",
    type=Positive(),
    default=LOST_AFTER_S,
    show_default=True,
    help="Seconds without a word from a worker after which its job is given to another one.",
)
runsc: Decorator = click.option(
    "--runsc",
    type=AbsoluteFile(),
    help="The runsc to capture with.  [default: the installed one]",
)


def check_imports(planner: str, import_sets: Sequence[Sequence[str]]) -> None:
    """Raises a usage error: another planner would not look at them."""
    if import_sets and planner != "fixed":
        raise click.UsageError("--imports needs --planner fixed")
