"""``readie-pipeline warm``: what ``readie up`` starts in the background when it has no checkpoints."""

import asyncio
import fcntl
import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from readie_pipeline.capture.building import Job, Report, build
from readie_pipeline.commands import options
from readie_pipeline.commands.building import capturer_of
from readie_pipeline.commands.corpus_services import gateway_token
from readie_pipeline.console import Terminal, counted, short
from readie_pipeline.corpus.patience import Patience
from readie_pipeline.corpus.recorded import fetch_recorded
from readie_pipeline.errors import CorpusError, OutputError
from readie_pipeline.measure.interpreter import Interpreter, network_off
from readie_pipeline.measure.inventory import Inventory
from readie_pipeline.measure.journal import JournalledProber
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.measure.probing import LocalProber
from readie_pipeline.measure.surveying import survey
from readie_pipeline.plan.costs import Budget
from readie_pipeline.plan.fixed import plan_fixed
from readie_pipeline.plan.plan import Plan
from readie_pipeline.plan.planning import plan_corpus
from readie_pipeline.progress import LineProgress
from readie_pipeline.warming.choosing import expected_workloads, recorded_workloads
from readie_pipeline.warming.usual import ImportSet

NICENESS = 10  # calls that run meanwhile come first
IMPORT_S = 60.0  # for one module, on a machine that is busy with calls
MOST_CHECKPOINTS = 8  # the first few save most, and each takes time, disk or memory
MEMORY_MB = 1024.0  # of all of them together
JOURNAL = "measurements.journal"
DRAFT = "new"
EVERY_S = 5.0  # between lines: often enough to see that it goes on, seldom enough to read
PATIENCE = Patience(deadline_s=10.0, retries=1)  # with a gateway on the same machine


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Where generations go, each in a folder with its id, and what an ended run has measured.",
)
@click.option("--runtime", type=click.Choice(["gvisor", "fork"]), required=True)
@click.option(
    "--imports",
    "import_sets",
    type=options.ImportSet(),
    multiple=True,
    help="What one checkpoint imports; once for each.  [default: chosen by measuring]",
)
@click.option(
    "--recorded",
    metavar="URL",
    help="Choose by what the calls of this gateway have imported.  [default: what people usually do]",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Token of that gateway.  [default: READIE_AUTH_TOKEN, or that of `readie up`]",
)
@options.flavor
@click.pass_obj
def warm(
    terminal: Terminal,
    *,
    folder: Path,
    runtime: str,
    import_sets: Sequence[ImportSet],
    recorded: str | None,
    token_file: Path | None,
    flavor: str,
) -> None:
    """Make a generation for this environment, at low priority and in bounded time.

    An ended run goes on where it was.
    """
    os.nice(NICENESS)
    progress = LineProgress(terminal.say, EVERY_S)
    with _alone_in(folder):
        given = dict.fromkeys(import_sets, 1)
        chosen = functools.partial(choose, terminal, recorded, token_file)
        metadata, plan = _plan(terminal, folder, given, chosen, flavor, progress)
        job = Job(plan, metadata, folder / DRAFT, with_empty=True)
        capturer = capturer_of(runtime, None, IMPORT_S)
        report = asyncio.run(build(job, capturer, progress.track, terminal.say))
        _name(terminal, folder, report)


def _plan(
    terminal: Terminal,
    folder: Path,
    import_sets: Mapping[ImportSet, int],
    chosen: Callable[[Inventory], Mapping[ImportSet, int]],
    flavor: str,
    progress: LineProgress,
) -> tuple[Metadata, Plan]:
    with tempfile.TemporaryDirectory(prefix="readie-measure-", ignore_cleanup_errors=True) as home:
        interpreter = Interpreter(Path(home), wrapper=network_off() or ())
        inventory = Inventory.take(interpreter)
        workloads = import_sets or chosen(inventory)
        names = sorted({name for imports in workloads for name in imports})
        terminal.say(f"measures {counted(len(names), 'module')}: {short(names)}")
        prober = JournalledProber(
            LocalProber(interpreter, IMPORT_S, progress.track),
            folder / JOURNAL,
            inventory.fingerprint(),
        )
        metadata = survey(names, prober, inventory, repeats=1)
    for name, reason in metadata.failures.items():
        terminal.say(f"{name} is left out: {reason}")
    alpha = options.DEFAULT_ALPHA
    if import_sets:
        return metadata, plan_fixed(list(import_sets), metadata, flavor=flavor, alpha=alpha)
    planned = plan_corpus(
        list(workloads),
        metadata,
        planner="greedy",
        flavor=flavor,
        alpha=alpha,
        budget=Budget(MOST_CHECKPOINTS, MEMORY_MB),
        counts=list(workloads.values()),
    )
    for entry in planned.plan.entries:
        leading = short(planned.demand.leading(entry.imports))
        terminal.say(f"will capture {leading}: {entry.size_mb:.0f} MB")
    return metadata, planned.plan


def choose(
    terminal: Terminal, recorded: str | None, token_file: Path | None, inventory: Inventory
) -> Mapping[ImportSet, int]:
    """What is to be planned for: what calls have imported, where they are told of; else the usual.

    Raises `MeasureError`.
    """
    if recorded is not None:
        try:
            token = gateway_token(recorded, token_file)
            found = recorded_workloads(fetch_recorded(recorded, token, None, PATIENCE), inventory)
        except CorpusError as error:
            terminal.say(f"what calls import is not known: {error}")
        else:
            if found:
                terminal.say(f"plans from {sum(found.values()):,} calls that were recorded")
                return found
            terminal.say("no call that was recorded imports anything that is installed here")
    terminal.say("plans from what scripts usually import")
    return expected_workloads(inventory)


def _name(terminal: Terminal, folder: Path, report: Report) -> None:
    """Give the draft the name it keeps; only then is what was measured no longer of use."""
    for checkpoint_id, reason in report.left_out.items():
        terminal.say(f"{checkpoint_id} is left out: {reason}")
    manifest = report.recorded.manifest
    (folder / DRAFT).rename(folder / manifest.generation)
    (folder / JOURNAL).unlink(missing_ok=True)
    terminal.say(f"captured {len(manifest.checkpoints)} checkpoints: {manifest.generation}")


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One at a time in a folder; a run that dies lets go. Raises `OutputError`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
    except BlockingIOError:
        raise OutputError(f"another run is at work in {folder}") from None
