"""``readie-pipeline analyze``: measure every package of an environment."""

import tempfile
from pathlib import Path

import click

from readie_pipeline.commands import options
from readie_pipeline.commands.offline import offline_wrapper
from readie_pipeline.console import Terminal
from readie_pipeline.distributing.connecting import connect
from readie_pipeline.distributing.queued import QueuedProber
from readie_pipeline.measure.interpreter import Interpreter
from readie_pipeline.measure.inventory import Inventory
from readie_pipeline.measure.journal import JournalledProber
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.measure.probing import LocalProber, Prober
from readie_pipeline.measure.surveying import survey
from readie_pipeline.workspace import MissingInputError, Workspace

_SLOWEST = 10  # items that the summary lists


@click.command()
@options.data
@options.flavor
@options.timeout
@options.repeats
@options.python
@click.option(
    "--exclude",
    default="google",
    envvar="ANALYZE_EXCLUDE",
    show_default=True,
    help="Packages that are not imported, space-separated.",
)
@click.option(
    "--only-corpus", is_flag=True, help="Only what the corpus imports, not every package there is."
)
@click.option(
    "--queue",
    "queue_url",
    help="redis://…: let `readie-pipeline worker` processes measure, not this one.",
)
@click.pass_obj
def analyze(
    terminal: Terminal,
    *,
    data: Path,
    flavor: str,
    timeout: float,
    repeats: int,
    python: Path,
    exclude: str,
    only_corpus: bool,
    queue_url: str | None,
) -> None:
    """Import every package in fresh processes: time, memory, disk size, dependencies.

    An interrupted run goes on where it was.
    """
    workspace = Workspace(data, flavor)
    with tempfile.TemporaryDirectory(prefix="readie-measure-") as home:
        interpreter = Interpreter(Path(home), python, offline_wrapper(terminal))
        inventory = Inventory.take(interpreter)
        names = _asked(terminal, workspace, inventory, only_corpus=only_corpus)
        fingerprint = inventory.fingerprint()
        inner: Prober = LocalProber(interpreter, timeout, terminal.track)
        if queue_url is not None:
            inner = QueuedProber(connect(queue_url), fingerprint, timeout, terminal.track)
        prober = JournalledProber(inner, workspace.journal, fingerprint)
        metadata = survey(names, prober, inventory, repeats=repeats, excluded=exclude.split())
    workspace.write_metadata(metadata)
    prober.remove()
    _summarise(terminal, metadata, workspace.metadata)


def _asked(
    terminal: Terminal, workspace: Workspace, inventory: Inventory, *, only_corpus: bool
) -> frozenset[str]:
    """Modules to measure: what is installed, and what the corpus imports of it."""
    try:
        requests = workspace.read_dataset().requests()
    except MissingInputError as error:
        if only_corpus:
            raise
        terminal.warn(f"{error}; submodules that nothing asks for are not measured")
        return inventory.packages
    used = {name for request in requests for name in request}
    asked = frozenset(inventory.existing(used).values())
    return asked if only_corpus else asked | inventory.packages


def _summarise(terminal: Terminal, metadata: Metadata, path: Path) -> None:
    for name, reason in sorted(metadata.failures.items()):
        terminal.warn(f"{name} could not be measured: {reason}")
    slowest = sorted(metadata.items, key=lambda name: -metadata.items[name].load_time)
    for name in slowest[:_SLOWEST]:
        item = metadata.items[name]
        terminal.say(f"{name:30} {item.load_time:8.3f} s {item.size_mb:8.1f} MB")
    failed = f", {len(metadata.failures)} failed" if metadata.failures else ""
    terminal.say(f"{len(metadata.items)} items measured{failed}")
    terminal.say(f"the measurements are in {path}")
    terminal.say("next: readie-pipeline plan --explain")
