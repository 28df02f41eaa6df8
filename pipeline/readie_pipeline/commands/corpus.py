"""``readie-pipeline corpus``: collect what people's code imports."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from readie_pipeline.commands import options
from readie_pipeline.console import Terminal
from readie_pipeline.corpus.dataset import Dataset, Workload
from readie_pipeline.corpus.folder import read_folder
from readie_pipeline.corpus.import_sets import read_import_sets
from readie_pipeline.workspace import Workspace

_MOST_FREQUENT = 10  # packages that the summary lists
_PROBLEMS_SHOWN = 10


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
@click.option("--no-code", is_flag=True, help="Keep what is imported, not the code itself.")
@click.option("--append", is_flag=True, help="Add to the corpus that is there.")
@options.data
@options.flavor
@click.pass_obj
def corpus(
    terminal: Terminal,
    *,
    folders: Sequence[Path],
    files: Sequence[Path],
    no_code: bool,
    append: bool,
    data: Path,
    flavor: str,
) -> None:
    """Collect example workloads into one corpus for a flavor."""
    if not folders and not files:
        raise click.UsageError("give --folder or --import-sets")
    workspace = Workspace(data, flavor)
    workloads = list(workspace.read_dataset().workloads) if append else []
    for folder in folders:
        workloads += _from_folder(terminal, folder, keep_code=not no_code)
    for file in files:
        workloads += read_import_sets(file)
    unique = {workload.id: workload for workload in workloads}
    workspace.write_dataset(Dataset(flavor, tuple(unique.values())))
    _summarise(terminal, list(unique.values()), workspace.dataset)


def _from_folder(terminal: Terminal, folder: Path, *, keep_code: bool) -> list[Workload]:
    found = list(read_folder(folder, keep_code=keep_code))
    troubled = [(one.path, problem) for one in found for problem in one.problems]
    for path, problem in troubled[:_PROBLEMS_SHOWN]:
        terminal.warn(f"{path}: {problem}")
    if len(troubled) > _PROBLEMS_SHOWN:
        terminal.warn(f"{len(troubled) - _PROBLEMS_SHOWN} more problems like these")
    return [one.workload for one in found if one.workload is not None]


def _summarise(terminal: Terminal, workloads: Sequence[Workload], path: Path) -> None:
    tops = Counter(
        top
        for workload in workloads
        for top in {name.partition(".")[0] for name in workload.resources.packages}
    )
    without = sum(not workload.resources.packages for workload in workloads)
    terminal.say(f"{len(workloads)} workloads, {without} of them import no package")
    frequent = ", ".join(f"{name} {count}" for name, count in tops.most_common(_MOST_FREQUENT))
    if frequent:
        terminal.say(f"most frequent: {frequent}")
    terminal.say(f"the corpus is in {path}")
    terminal.say("next: readie-pipeline analyze")
