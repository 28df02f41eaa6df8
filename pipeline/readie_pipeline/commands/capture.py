"""``readie-pipeline capture``: measure, plan and build a generation in one go."""

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from readie_pipeline.capture.building import Job, Report, build
from readie_pipeline.capture.capturer import Capturer
from readie_pipeline.capture.fork import ForkCapturer
from readie_pipeline.capture.gvisor import GVisorCapturer
from readie_pipeline.capture.staging import check_output
from readie_pipeline.commands import options
from readie_pipeline.commands.offline import offline_wrapper
from readie_pipeline.console import Terminal
from readie_pipeline.errors import PipelineError
from readie_pipeline.measure.interpreter import Interpreter
from readie_pipeline.measure.inventory import Inventory
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.measure.probing import LocalProber
from readie_pipeline.measure.surveying import survey
from readie_pipeline.plan.fixed import plan_fixed
from readie_worker.sandbox.selftest import find_runsc


@click.command()
@click.option("--planner", type=click.Choice(["fixed"]), default="fixed", envvar="READIE_PLANNER")
@click.option(
    "--imports",
    "import_sets",
    type=options.ImportSet(),
    multiple=True,
    help="What one checkpoint imports, comma-separated; once for each checkpoint.",
)
@click.option("--runtime", type=click.Choice(["gvisor", "fork"]), required=True)
@click.option("--with-empty", is_flag=True, help="Add checkpoint_0, which imports nothing.")
@click.option("--strict", is_flag=True, help="Stop at the first checkpoint that fails.")
@click.option(
    "--runsc",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The runsc to capture with.  [default: the installed one]",
)
@options.out
@options.flavor
@options.alpha
@options.timeout
@options.repeats
@click.pass_obj
def capture(
    terminal: Terminal,
    *,
    planner: str,
    import_sets: Sequence[Sequence[str]],
    runtime: str,
    with_empty: bool,
    strict: bool,
    runsc: Path | None,
    out: Path,
    flavor: str,
    alpha: float,
    timeout: float,
    repeats: int,
) -> None:
    """Plan which packages go into each checkpoint, capture them, write the generation."""
    check_output(out)
    metadata = _measure(terminal, import_sets, timeout, repeats)
    for name, reason in metadata.failures.items():
        terminal.warn(f"{name} could not be measured: {reason}")
    for name in sorted(metadata.items):
        if not metadata.items[name].distribution:
            terminal.warn(f"{name} is in no installed distribution: it is not priced")
    plan = plan_fixed(import_sets, metadata, flavor=flavor, alpha=alpha)
    job = Job(plan, metadata, out, with_empty=with_empty, strict=strict)
    report = asyncio.run(build(job, _capturer(runtime, runsc, timeout), terminal.track))
    show(terminal, report, out)
    if report.left_out:
        raise PipelineError(f"{len(report.left_out)} planned checkpoint(s) are missing")


def _measure(
    terminal: Terminal, import_sets: Sequence[Sequence[str]], timeout: float, repeats: int
) -> Metadata:
    names = {name for imports in import_sets for name in imports}
    with tempfile.TemporaryDirectory(prefix="readie-measure-") as home:
        interpreter = Interpreter(Path(home), wrapper=offline_wrapper(terminal))
        prober = LocalProber(interpreter, timeout, terminal.track)
        return survey(names, prober, Inventory.take(interpreter), repeats=repeats)


def _capturer(runtime: str, runsc: Path | None, timeout: float) -> Capturer:
    if runtime == "fork":
        return ForkCapturer(timeout, os.environ)
    found = runsc or find_runsc()
    if found is None:
        raise PipelineError(
            "there is no runsc on this machine; install one with infra/gvisor/install, or name it "
            "with --runsc, or use --runtime fork"
        )
    return GVisorCapturer(found, timeout, os.environ)


def show(terminal: Terminal, report: Report, out: Path) -> None:
    """What was captured, what was not and why, alpha planned and measured, and what comes next."""
    recorded = report.recorded
    table = Table("checkpoint", "imports", "MB", "restore ms", box=None, pad_edge=False)
    for one in recorded.catalogue.checkpoints:
        restore_s = report.captured[one.id].restore_s
        table.add_row(
            one.id,
            ", ".join(one.canonical) or "nothing",
            f"{one.size_mb:.1f}",
            "" if restore_s is None else f"{restore_s * 1000:.1f}",
        )
    terminal.out.print(table)
    for checkpoint_id, reason in report.left_out.items():
        terminal.warn(f"{checkpoint_id} is left out: {reason}")
    for checkpoint_id, captured in report.captured.items():
        for remark in captured.gate:
            terminal.warn(f"{checkpoint_id}: {remark}")
    terminal.say(alpha_line(report))
    startup = recorded.manifest.startup_s
    terminal.say(
        f"start with nothing to import: cold {startup.cold:.3f} s, restore {startup.restore:.3f} s"
    )
    terminal.say(f"generation {recorded.manifest.generation} is in {out}")
    terminal.say(f"next: readie up --generations {out}")


def alpha_line(report: Report) -> str:
    """Planned and measured alpha side by side, and which of them the catalogue has."""
    recorded = report.recorded
    fit = recorded.fit
    measured = f"{fit.alpha:.6f}" if fit.alpha is not None else f"none ({fit.reason})"
    if not recorded.size_matters:
        runtime = recorded.manifest.runtime
        verdict = f"planned is kept: what {runtime} restores does not depend on size"
    else:
        verdict = "planned is kept" if fit.alpha is None else "measured is used"
    return f"alpha in s/MB: planned {recorded.planned_alpha:.6f}, measured {measured}; {verdict}"
