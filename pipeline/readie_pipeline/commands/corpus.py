"""``readie-pipeline corpus``: collect what people's code imports."""

import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from readie_pipeline.commands import options
from readie_pipeline.commands.corpus_services import Services, gateway_token, service_options
from readie_pipeline.console import Terminal, short
from readie_pipeline.corpus.answers import Answers
from readie_pipeline.corpus.checking import Checked, check
from readie_pipeline.corpus.dataset import PREFIXES, Dataset, Workload
from readie_pipeline.corpus.folder import read_folder
from readie_pipeline.corpus.import_sets import read_import_sets
from readie_pipeline.corpus.recorded import fetch_recorded, load_recorded
from readie_pipeline.corpus.sources import Found, gather
from readie_pipeline.errors import CorpusError, ServiceError
from readie_pipeline.journal import Journal
from readie_pipeline.measure.interpreter import Interpreter
from readie_pipeline.measure.inventory import Inventory
from readie_pipeline.workspace import Workspace

_MOST_FREQUENT = 10  # packages that the summary lists
_PROBLEMS_SHOWN = 10
_UNKNOWN_SHOWN = 20


@click.command()
@click.option(
    "--folder",
    "folders",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    help="A folder of scripts and notebooks.",
)
@click.option(
    "--import-sets",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help='A file of import sets: {"id", "kind", "imports"}, one JSON object a line.',
)
@click.option(
    "--recorded",
    "recorded",
    metavar="URL|FILE",
    multiple=True,
    help="What a gateway recorded of its calls, or a saved file of that.",
)
@click.option(
    "--days", type=click.IntRange(1), help="Of recorded calls.  [default: all that are kept]"
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Token of the gateway.  [default: READIE_AUTH_TOKEN, or that of `readie up`]",
)
@service_options
@click.option(
    "--check/--no-check",
    "checking",
    default=True,
    show_default=True,
    help="Ask the services that own packages, datasets and models whether those exist.",
)
@click.option("--no-code", is_flag=True, help="Keep what is imported, not the code itself.")
@click.option(
    "--append",
    is_flag=True,
    help="Add to the corpus that is there; alone, check again what could not be checked.",
)
@options.python
@options.data
@options.flavor
@click.pass_obj
def corpus(
    terminal: Terminal,
    *,
    folders: Sequence[Path],
    files: Sequence[Path],
    recorded: Sequence[str],
    days: int | None,
    token_file: Path | None,
    services: Services,
    checking: bool,
    no_code: bool,
    append: bool,
    python: Path,
    data: Path,
    flavor: str,
) -> None:
    """Collect example workloads into one corpus for a flavor.

    An interrupted run goes on where it was, and asks no service twice.
    """
    if not (folders or files or recorded or services or append):
        raise click.UsageError(
            "give --folder, --import-sets, --recorded, --kaggle, --hugging-face or --model"
        )
    workspace = Workspace(data, flavor)
    installed = _installed(python) if folders or checking else frozenset()
    workloads = list(workspace.read_dataset().workloads) if append else []
    for folder in folders:
        workloads += _kept(terminal, read_folder(folder, {_top(name) for name in installed}))
    for file in files:
        workloads += read_import_sets(file)
    for place in recorded:
        workloads += _recorded(place, days, token_file, services)
    journal = Journal(workspace.gathered, "example code, 1")
    workloads += _from_services(terminal, services, journal)
    # Files of import sets may number their lines alike.
    unique = {(workload.id, workload.source): workload for workload in workloads}
    if not unique:
        raise CorpusError(f"no workload was found; {workspace.dataset} is left as it was")
    if checking:
        checked = _check(terminal, list(unique.values()), services, installed, workspace)
    else:
        checked = Checked(list(unique.values()), {}, {})
    if no_code:
        checked = replace(checked, workloads=[replace(one, code=()) for one in checked.workloads])
    workspace.write_dataset(Dataset(flavor, checked.workloads))
    journal.remove()
    _summarise(terminal, checked, workspace.dataset)


def _installed(python: Path) -> Collection[str]:
    """Packages that the interpreter has whose packages are meant."""
    with tempfile.TemporaryDirectory(prefix="readie-corpus-", ignore_cleanup_errors=True) as home:
        return Inventory.take(Interpreter(Path(home), python)).packages


def _recorded(
    place: str, days: int | None, token_file: Path | None, services: Services
) -> Sequence[Workload]:
    if place.startswith(("http://", "https://")):
        token = gateway_token(place, token_file)
        return fetch_recorded(place, token, days, services.patience)
    return load_recorded(Path(place))


def _from_services(terminal: Terminal, services: Services, journal: Journal) -> list[Workload]:
    """Raises `ServiceError`: one is of no use now; what came before is kept for the next run."""
    if journal.known:
        terminal.say(f"goes on where the last run was: {len(journal.known)} answers are there")
    found: list[Workload] = []
    try:
        for source in services.sources():
            found += _kept(terminal, gather(source, journal, terminal.track))
    except ServiceError as error:
        raise ServiceError(
            f"{error}; {len(journal.known)} answers are kept, the same command goes on from there"
        ) from error
    return found


def _kept(terminal: Terminal, found: Iterable[Found]) -> list[Workload]:
    """The workloads; what was not right with the others is told, as far as it is short."""
    looked_at = list(found)
    troubled = [(one.path, problem) for one in looked_at for problem in one.problems]
    for path, problem in troubled[:_PROBLEMS_SHOWN]:
        terminal.warn(f"{path}: {problem}")
    if len(troubled) > _PROBLEMS_SHOWN:
        terminal.warn(f"{len(troubled) - _PROBLEMS_SHOWN} more problems like these")
    return [one.workload for one in looked_at if one.workload is not None]


def _check(
    terminal: Terminal,
    workloads: Sequence[Workload],
    services: Services,
    installed: Collection[str],
    workspace: Workspace,
) -> Checked:
    answers = Answers(workspace.answers, datetime.now(UTC).date())
    return check(workloads, services.owners(), installed, answers, terminal.track)


def _summarise(terminal: Terminal, checked: Checked, path: Path) -> None:
    workloads = checked.workloads
    tops: Counter[str] = Counter()
    for workload in workloads:
        used = {_top(name) for name in workload.resources.packages}
        tops.update(dict.fromkeys(used, workload.count))
    without = sum(not workload.resources.packages for workload in workloads)
    calls = sum(workload.count for workload in workloads)
    for_calls = f" for {calls} calls" if calls > len(workloads) else ""
    terminal.say(f"{len(workloads)} workloads{for_calls}, {without} of them import no package")
    if tops:
        terminal.say(f"most frequent: {short(_by_count(tops), _MOST_FREQUENT)}")
    for kind in PREFIXES:
        names = Counter(name for one in workloads for name in getattr(one.resources, kind))
        if names:
            terminal.say(f"{kind}: {short(_by_count(names))}")
    if checked.unknown:
        unknown = short(_by_count(Counter(checked.unknown)), _UNKNOWN_SHOWN)
        terminal.say(f"{len(checked.unknown)} unknown, dropped: {unknown}")
    unchecked = sum(bool(workload.unchecked) for workload in workloads)
    for reason in checked.silent.values():
        terminal.warn(reason)
    if unchecked:
        terminal.warn(
            f"{unchecked} workloads use what could not be checked; "
            "`readie-pipeline corpus --append` checks that again"
        )
    terminal.say(f"the corpus is in {path}")
    terminal.say("next: readie-pipeline analyze")


def _by_count(names: Counter[str]) -> Sequence[str]:
    ordered = sorted(names.items(), key=lambda entry: (-entry[1], entry[0]))
    return [f"{name} {count}" for name, count in ordered]


def _top(name: str) -> str:
    return name.partition(".")[0]
