"""``readie-pipeline analyze``: measure every package of an environment."""

import tempfile
from dataclasses import replace
from pathlib import Path

import click

from readie_pipeline.commands import options
from readie_pipeline.commands.offline import offline_wrapper
from readie_pipeline.commands.resource_options import resource_options
from readie_pipeline.console import Terminal, short
from readie_pipeline.distributing.connecting import connect
from readie_pipeline.distributing.queued import QueuedProber
from readie_pipeline.measure.interpreter import Interpreter
from readie_pipeline.measure.inventory import Inventory
from readie_pipeline.measure.journal import JournalledProber
from readie_pipeline.measure.locating import Places
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.measure.probing import LocalProber, Prober
from readie_pipeline.measure.resources import Resources, find_resources
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
@options.queue
@options.lost_after
@resource_options
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
    lost_after: float,
    places: Places,
) -> None:
    """Import every package in fresh processes: time, memory, disk size, dependencies.

    Datasets, models and tokenizers that the corpus names are loaded in the same way where they are on
    this machine; nothing is fetched. An interrupted run goes on where it was.
    """
    workspace = Workspace(data, flavor)
    with tempfile.TemporaryDirectory(prefix="readie-measure-", ignore_cleanup_errors=True) as home:
        interpreter = Interpreter(Path(home), python, offline_wrapper(terminal))
        inventory = Inventory.take(interpreter)
        used = _used(terminal, workspace, required=only_corpus)
        names = frozenset(inventory.existing(used).values())
        if not only_corpus:
            names |= inventory.packages
        named = {name for name in used if ":" in name}
        resources = find_resources(named | places.given.keys(), places, inventory)
        fingerprint = inventory.fingerprint()
        inner: Prober = LocalProber(interpreter, timeout, terminal.track)
        if queue_url is not None:
            inner = QueuedProber(
                connect(queue_url), fingerprint, timeout, terminal.track, lost_after
            )
        prober = JournalledProber(inner, workspace.journal, fingerprint)
        try:
            metadata = survey(
                names,
                prober,
                inventory,
                repeats=repeats,
                excluded=exclude.split(),
                calls=resources.calls,
            )
        except KeyboardInterrupt:
            terminal.note(f"what was measured is in {workspace.journal}; the same command goes on")
            raise
    metadata = replace(metadata, failures={**metadata.failures, **resources.failures})
    workspace.write_metadata(metadata)
    prober.remove()
    _summarise(terminal, metadata, workspace.metadata)
    _tell_absent(terminal, resources)


def _used(terminal: Terminal, workspace: Workspace, *, required: bool) -> frozenset[str]:
    """What the corpus imports and loads."""
    try:
        requests = workspace.read_dataset().requests()
    except MissingInputError as error:
        if required:
            raise
        terminal.warn(f"{error}; submodules that nothing asks for are not measured")
        return frozenset()
    return frozenset(name for request in requests for name in request)


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


def _tell_absent(terminal: Terminal, resources: Resources) -> None:
    if resources.absent:
        terminal.warn(
            f"{len(resources.absent)} of the corpus's datasets, models and tokenizers are not on this "
            f"machine and were not measured: {short(sorted(resources.absent))}; name a place with "
            "--resource KIND:NAME=PATH"
        )
