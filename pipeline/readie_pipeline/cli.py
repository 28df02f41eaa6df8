"""``readie-pipeline``: the commands that build generations and publish them."""

import signal
import sys
from importlib import import_module
from types import FrameType

import click

from readie_infra.errors import InfraError
from readie_pipeline.console import Terminal
from readie_pipeline.errors import PipelineError

# Where each command is, in the order in which they are used.
_COMMANDS = {
    "corpus": "corpus:corpus",
    "analyze": "analyze:analyze",
    "plan": "plan:plan",
    "build": "build:build",
    "capture": "capture:capture",
    "report": "report:report",
    "warm": "warm:warm",
    "worker": "worker:worker",
    "publish": "publish:publish",
    "list": "published:list_published",
    "verify": "published:verify",
    "rollback": "published:rollback",
    "gc": "published:gc",
    "keygen": "publish:keygen",
}


class Commands(click.Group):
    """Loads a command when it is asked for: each needs other libraries, some of them slow to import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        place = import_module(f"readie_pipeline.commands.{module}")
        command: click.Command = getattr(place, attribute)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="readie")
@click.pass_context
def cli(context: click.Context) -> None:
    """Build generations: measure imports, plan checkpoints, capture them, publish them."""
    context.obj = Terminal()


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
