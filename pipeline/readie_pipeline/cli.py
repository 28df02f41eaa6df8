"""``readie-pipeline``: the commands that build generations and publish them."""

import signal
import sys
from types import FrameType

import click

from readie_infra.errors import InfraError
from readie_pipeline.commands.analyze import analyze
from readie_pipeline.commands.build import build
from readie_pipeline.commands.capture import capture
from readie_pipeline.commands.corpus import corpus
from readie_pipeline.commands.plan import plan
from readie_pipeline.commands.publish import keygen, publish
from readie_pipeline.commands.published import gc, list_published, rollback, verify
from readie_pipeline.commands.report import report
from readie_pipeline.commands.warm import warm
from readie_pipeline.commands.worker import worker
from readie_pipeline.console import Terminal
from readie_pipeline.errors import PipelineError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="readie")
@click.pass_context
def cli(context: click.Context) -> None:
    """Build generations: measure imports, plan checkpoints, capture them, publish them."""
    context.obj = Terminal()


for command in (corpus, analyze, plan, build, capture, report, warm, worker):
    cli.add_command(command)
for command in (publish, list_published, verify, rollback, gc, keygen):
    cli.add_command(command)


def main() -> None:
    # Where a shell had it ignored (it does for what it does not wait for), asyncio would not take
    # SIGINT over, and an interrupt would tear its tasks down in any order.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        cli(prog_name="readie-pipeline")
    except (PipelineError, InfraError) as error:
        click.echo(f"readie-pipeline: {error}", err=True)
        sys.exit(1)


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    """As Ctrl-C does, so that sandboxes are ended and temporary folders removed on the way out."""
    signal.raise_signal(signal.SIGINT)
