"""``readie-pipeline report``: a page about a generation."""

from pathlib import Path

import click

from readie_pipeline.capture.staging import CATALOGUE, CHECKPOINTS, MANIFEST, META
from readie_pipeline.commands import options
from readie_pipeline.console import Terminal
from readie_pipeline.errors import OutputError
from readie_pipeline.report.coverage import cover, percentile
from readie_pipeline.workspace import MissingInputError, Workspace, read_input, write_whole
from readie_wire.catalogue import CatalogueError, load_catalogue
from readie_wire.manifest import ManifestError, load_manifest, load_meta

_CAPTURE = "readie-pipeline capture"


@click.command()
@click.option(
    "--generation",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="The generation's folder.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default="report.html",
    show_default=True,
    help="The page to write.",
)
@options.data
@click.pass_obj
def report(terminal: Terminal, *, generation: Path, out: Path, data: Path) -> None:
    """Write one HTML page: restores, what the corpus gains, what is still imported cold."""
    try:
        manifest = load_manifest(read_input(generation / MANIFEST, _CAPTURE))
        catalogue = load_catalogue(read_input(generation / CATALOGUE, _CAPTURE))
        metas = {
            one.id: load_meta(read_input(generation / CHECKPOINTS / one.id / META, _CAPTURE))
            for one in catalogue.checkpoints
        }
    except (ManifestError, CatalogueError) as error:
        raise OutputError(f"{generation} is no generation: {error}") from error
    try:
        dataset = Workspace(data, manifest.flavor).read_dataset()
    except MissingInputError as error:
        terminal.warn(f"{error}; the page says nothing about a corpus")
        coverage = None
    else:
        coverage = cover(catalogue, manifest, dataset.requests(), dataset.counts())
    # matplotlib takes half a second to import, which no other command should pay.
    from readie_pipeline.report.page import make_page
    from readie_pipeline.report.subject import Subject

    write_whole(out, make_page(Subject(manifest, catalogue, metas, coverage)).encode())
    if coverage is not None and coverage.starts:
        cold_s, chosen_s = percentile(coverage.starts, 0.5)
        terminal.say(
            f"{coverage.saved_share:.0%} of {coverage.cold_s:.1f} s of imports saved over the corpus; median "
            f"start {chosen_s:.2f} s instead of {cold_s:.2f} s"
        )
    terminal.say(f"the report is in {out}")
