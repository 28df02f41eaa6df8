"""``readie-pipeline build``: capture a plan that was made before."""

from pathlib import Path

import click

from readie_pipeline.capture.staging import check_output
from readie_pipeline.commands import options
from readie_pipeline.commands.building import BuildOptions, build_options, run_build
from readie_pipeline.commands.ground import tell_difference, tell_skipped
from readie_pipeline.console import Terminal
from readie_pipeline.plan_folder import PlanFolder
from readie_pipeline.workspace import Workspace


@click.command()
@options.plan_dir
@build_options
@options.data
@options.rootfs
@click.pass_obj
def build(
    terminal: Terminal, *, plan_dir: Path, data: Path, rootfs: Path, given: BuildOptions
) -> None:
    """Capture every checkpoint of a plan, write the generation.

    A run that was interrupted goes on where it was.
    """
    check_output(given.out)
    folder = PlanFolder(plan_dir)
    plan = folder.read()
    metadata = Workspace(data, plan.flavor).read_metadata()
    tell_skipped(terminal, folder, rootfs, plan, metadata)
    if given.runtime == "gvisor":
        tell_difference(terminal, folder)
    run_build(terminal, plan, metadata, given, with_empty=plan.planner != "fixed")
