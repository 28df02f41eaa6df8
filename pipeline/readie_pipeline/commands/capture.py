"""``readie-pipeline capture``: plan and build in one go."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from readie_pipeline.capture.staging import check_output
from readie_pipeline.commands import options
from readie_pipeline.commands.building import BuildOptions, build_options, run_build
from readie_pipeline.commands.offline import offline_wrapper
from readie_pipeline.commands.plan import plan_and_show, write_plan
from readie_pipeline.console import Terminal
from readie_pipeline.distributing.queued import QueuedProber
from readie_pipeline.measure.interpreter import Interpreter
from readie_pipeline.measure.inventory import Inventory
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.measure.probing import LocalProber, Prober
from readie_pipeline.measure.surveying import survey
from readie_pipeline.plan.costs import Budget
from readie_pipeline.plan.fixed import plan_fixed
from readie_pipeline.plan_folder import PlanFolder
from readie_pipeline.workspace import Workspace


@click.command()
@options.planner
@options.import_sets
@click.option("--with-empty", is_flag=True, help="Add checkpoint_0 to a fixed plan too.")
@options.explain
@build_options
@options.flavor
@options.alpha
@options.repeats
@options.data
@options.save_plan
@options.rootfs
@options.max_checkpoints
@options.size_budget_mb
@click.pass_obj
def capture(
    terminal: Terminal,
    *,
    planner: str,
    import_sets: Sequence[Sequence[str]],
    with_empty: bool,
    explain: bool,
    flavor: str,
    alpha: float,
    repeats: int,
    data: Path,
    plan_dir: Path | None,
    rootfs: Path,
    max_checkpoints: int,
    size_budget_mb: float,
    given: BuildOptions,
) -> None:
    """Plan which packages go into each checkpoint, capture them, write the generation.

    A run that was interrupted goes on where it was.
    """
    check_output(given.out)
    options.check_imports(planner, import_sets)
    if planner == "fixed":
        metadata = _measure(terminal, import_sets, given, repeats)
        plan = plan_fixed(import_sets, metadata, flavor=flavor, alpha=alpha)
    else:
        budget = Budget(max_checkpoints, size_budget_mb)
        plan, metadata = plan_and_show(
            terminal,
            Workspace(data, flavor),
            planner=planner,
            alpha=alpha,
            budget=budget,
            explain=explain,
        )
    if plan_dir is not None:
        write_plan(terminal, PlanFolder(plan_dir), rootfs, plan, metadata)
    run_build(terminal, plan, metadata, given, with_empty=with_empty or planner != "fixed")


def _measure(
    terminal: Terminal, import_sets: Sequence[Sequence[str]], given: BuildOptions, repeats: int
) -> Metadata:
    names = {name for imports in import_sets for name in imports}
    with tempfile.TemporaryDirectory(prefix="readie-measure-", ignore_cleanup_errors=True) as home:
        interpreter = Interpreter(Path(home), wrapper=offline_wrapper(terminal))
        inventory = Inventory.take(interpreter)
        prober: Prober = LocalProber(interpreter, given.timeout, terminal.track)
        if (connection := given.connect()) is not None:
            prober = QueuedProber(
                connection,
                inventory.fingerprint(),
                given.timeout,
                terminal.track,
                given.lost_after,
            )
        metadata = survey(names, prober, inventory, repeats=repeats)
    for name, reason in metadata.failures.items():
        terminal.warn(f"{name} could not be measured: {reason}")
    for name in sorted(metadata.items):
        if not metadata.items[name].distribution:
            terminal.warn(f"{name} is in no installed distribution: it is not priced")
    return metadata
