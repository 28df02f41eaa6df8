"""``readie-pipeline plan``: choose what each checkpoint imports."""

from collections.abc import Sequence
from pathlib import Path

import click

from readie_pipeline.commands import options
from readie_pipeline.commands.ground import tell_skipped
from readie_pipeline.console import Terminal, counted, short
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.plan.costs import Budget
from readie_pipeline.plan.demand import Demand
from readie_pipeline.plan.fixed import plan_fixed
from readie_pipeline.plan.greedy import Explanation
from readie_pipeline.plan.plan import Plan
from readie_pipeline.plan.planning import Planned, plan_corpus
from readie_pipeline.plan_folder import PlanFolder
from readie_pipeline.workspace import Workspace


@click.command()
@options.planner
@options.import_sets
@options.data
@options.flavor
@options.alpha
@options.max_checkpoints
@options.size_budget_mb
@options.plan_dir
@options.rootfs
@options.explain
@click.pass_obj
def plan(
    terminal: Terminal,
    *,
    planner: str,
    import_sets: Sequence[Sequence[str]],
    data: Path,
    flavor: str,
    alpha: float,
    max_checkpoints: int,
    size_budget_mb: float,
    plan_dir: Path,
    rootfs: Path,
    explain: bool,
) -> None:
    """Choose what each checkpoint imports, from the corpus and the measurements."""
    options.check_imports(planner, import_sets)
    workspace = Workspace(data, flavor)
    if planner == "fixed":
        metadata = workspace.read_metadata()
        made = plan_fixed(import_sets, metadata, flavor=flavor, alpha=alpha)
        _show_entries(terminal, made, metadata)
    else:
        budget = Budget(max_checkpoints, size_budget_mb)
        made, metadata = plan_and_show(
            terminal, workspace, planner=planner, alpha=alpha, budget=budget, explain=explain
        )
    write_plan(terminal, PlanFolder(plan_dir), rootfs, made, metadata)
    terminal.say(f"the plan is in {plan_dir}")
    terminal.say(f"next: readie-pipeline build --plan-dir {plan_dir} --runtime … --out …")


def plan_and_show(
    terminal: Terminal,
    workspace: Workspace,
    *,
    planner: str,
    alpha: float,
    budget: Budget,
    explain: bool,
) -> tuple[Plan, Metadata]:
    """Plan from a workspace's corpus and say what comes of it; the plan and what it was made from.

    Raises `PlanError`, and what reading the workspace raises.
    """
    metadata = workspace.read_metadata()
    dataset = workspace.read_dataset()
    planned = plan_corpus(
        dataset.requests(),
        metadata,
        planner=planner,
        flavor=workspace.flavor,
        alpha=alpha,
        budget=budget,
        counts=dataset.counts(),
    )
    if explain and planned.explanation is not None:
        _show_rounds(terminal, planned.explanation, planned.demand)
    _show_plan(terminal, planned)
    return planned.plan, metadata


def write_plan(
    terminal: Terminal, folder: PlanFolder, rootfs: Path, made: Plan, metadata: Metadata
) -> None:
    """Raises `OutputError`."""
    folder.write(made, metadata)
    tell_skipped(terminal, folder, rootfs, made, metadata)


def _show_entries(terminal: Terminal, made: Plan, metadata: Metadata) -> None:
    for number, entry in enumerate(made.entries, start=1):
        terminal.say(f"checkpoint_{number}: {short(entry.imports)}; {entry.size_mb:.1f} MB")
        for name in entry.imports:
            if name not in metadata.items:
                terminal.warn(f"{name} was not measured: its size and what it needs are unknown")


def _show_rounds(terminal: Terminal, told: Explanation, demand: Demand) -> None:
    """The best candidates of each round; the first one was taken. What others pull in is not named."""
    before = told.cold_s
    terminal.say(f"without checkpoints: {before:.1f} s of imports over all requests")
    for number, round_ in enumerate(told.rounds, start=1):
        total = round_.totals[0][1]
        terminal.say(f"round {number}: total {total:.1f} s ({total - before:+.1f} s)")
        for place, (imports, candidate_s) in enumerate(round_.totals):
            mark = "+" if place == 0 else " "
            terminal.say(f"  {mark} {candidate_s:10.1f} s  {short(demand.leading(imports))}")
        before = total
    terminal.say(f"ended: {told.stopped}")


def _show_plan(terminal: Terminal, planned: Planned) -> None:
    for number, entry in enumerate(planned.plan.entries, start=1):
        terminal.say(
            f"checkpoint_{number}: {short(planned.demand.leading(entry.imports))}; {entry.size_mb:.1f} MB, "
            f"serves {counted(entry.requests, 'request')}, saves {entry.seconds_saved:.1f} s"
        )
    known = sum(planned.demand.counts)
    terminal.say(f"{known} of {counted(planned.demand.total, 'request')} need a measured package")
    saved = planned.cold_s - planned.total_s
    share = saved / planned.cold_s if planned.cold_s else 0.0
    size = sum(entry.size_mb for entry in planned.plan.entries)
    terminal.say(
        f"start-up of all requests: {planned.cold_s:.1f} s cold, {planned.total_s:.1f} s with "
        f"{size:.0f} MB of checkpoints: {share:.0%} saved"
    )
    terminal.say(
        f"no plan within the budget costs less than {planned.bound.total_s:.1f} s: "
        f"this one misses at most {planned.gap:.1%} of what could be saved"
    )
