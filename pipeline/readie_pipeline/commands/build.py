"""``readie-pipeline build``: capture a plan that was made before."""

from pathlib import Path

import click

from readie_pipeline.capture.staging import check_output
from readie_pipeline.commands import options
from readie_pipeline.commands.building import BuildOptions, build_options, run_build
from readie_pipeline.commands.plan import PLAN_FILE
from readie_pipeline.console import Terminal
from readie_pipeline.plan.plan import load_plan
from readie_pipeline.workspace import Workspace, read_input


@click.command()
@options.plan_dir
@build_options
@options.data
@click.pass_obj
def build(terminal: Terminal, *, plan_dir: Path, data: Path, given: BuildOptions) -> None:
    """Capture every checkpoint of a plan, write the generation.

    A run that was interrupted goes on where it was.
    """
    check_output(given.out)
    plan = load_plan(read_input(plan_dir / PLAN_FILE, "readie-pipeline plan"))
    metadata = Workspace(data, plan.flavor).read_metadata()
    run_build(terminal, plan, metadata, given, with_empty=plan.planner != "fixed")
