"""``readie-pipeline list``, ``verify``, ``rollback`` and ``gc``: what a bucket holds."""

from collections.abc import Sequence

import click
from rich.table import Table

from readie_infra.bucket import Bucket, Trust
from readie_infra.bucket.surveying import Held, generations, pointers
from readie_infra.objects import ObjectStore
from readie_pipeline.commands import options
from readie_pipeline.commands.bucket_options import bucket_options, trust_options
from readie_pipeline.commands.notifying import notify_options
from readie_pipeline.console import Terminal
from readie_pipeline.errors import PublishError
from readie_pipeline.publish.checking import faults
from readie_pipeline.publish.collecting import collect
from readie_pipeline.publish.publishing import roll_back
from readie_wire.publication import Pointer

MEGABYTE = 1_000_000
HOUR_S = 3_600.0


@click.command("list")
@bucket_options
@trust_options
@click.pass_obj
def list_published(terminal: Terminal, *, store: ObjectStore, trust: Trust) -> None:
    """Show the generations in a bucket and which of them are current."""
    found = [one.pointer for one in pointers(store)]
    table = Table("generation", "flavor", "rootfs", "files", "MB", "state", box=None)
    for held in generations(store, trust):
        listed = held.listed
        table.add_row(
            *(held.target.generation, held.flavor, listed.rootfs[:12] if listed else "?"),
            *((str(len(listed.files)), f"{listed.size / MEGABYTE:.1f}") if listed else ("?", "?")),
            _state(held, found),
        )
    terminal.out.print(table)


@click.command()
@bucket_options
@trust_options
@click.option("--generation", help="Only this one.  [default: all that pointers name]")
@click.pass_obj
def verify(terminal: Terminal, *, store: ObjectStore, trust: Trust, generation: str | None) -> None:
    """Fetch published files and compare them with what was signed."""
    wrong = 0
    for held in _chosen(store, trust, generation):
        if held.listed is None:
            found: Sequence[str] = [held.reason]
        else:
            found = faults(Bucket(store, trust), held.listed, terminal.track)
        for fault in found:
            terminal.say(f"{held.target.generation}: {fault}")
        if not found:
            terminal.say(f"{held.target.generation}: every file is as it was published")
        wrong += bool(found)
    if wrong:
        raise PublishError(f"{wrong} generations are damaged; publish them again after a gc")


@click.command()
@bucket_options
@options.flavor
@click.option("--rootfs", help="Digest of the root filesystem.  [default: the only one there is]")
@click.option("--to", "generation", help="The generation to go to.  [default: the previous one]")
@click.pass_obj
@notify_options
def rollback(
    terminal: Terminal,
    *,
    store: ObjectStore,
    flavor: str,
    rootfs: str | None,
    generation: str | None,
) -> None:
    """Make the previous generation current again."""
    pointer = roll_back(store, flavor, rootfs or _only_rootfs(store, flavor), generation)
    terminal.say(
        f"generation {pointer.target.generation} is current for {flavor}/{pointer.rootfs} again"
    )


@click.command()
@bucket_options
@click.option(
    "--min-age",
    type=click.FloatRange(min=1),
    default=72.0,
    show_default=True,
    help="Hours for which something must have been unused; longer than any publication takes.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Newest generations of each flavor and root filesystem that stay.",
)
@click.pass_obj
def gc(terminal: Terminal, *, store: ObjectStore, min_age: float, keep: int) -> None:
    """Delete what nothing refers to: marked by one run, deleted by a later one."""
    done = collect(store, min_age_s=min_age * HOUR_S, keep=keep)
    terminal.say(
        f"{done.deleted} objects deleted ({done.freed / MEGABYTE:.1f} MB), {done.marked} newly "
        f"marked, {done.kept} kept"
    )


def _state(held: Held, found: Sequence[Pointer]) -> str:
    if held.listed is None:
        return f"refused: {held.reason}"
    for pointer in found:
        if (pointer.flavor, pointer.rootfs) == (held.flavor, held.listed.rootfs):
            if pointer.target == held.target:
                return f"current since {pointer.published}"
            if pointer.previous == held.target:
                return "previous"
    return ""


def _chosen(store: ObjectStore, trust: Trust, generation: str | None) -> list[Held]:
    found = generations(store, trust)
    if generation is None:
        named = {target.generation for one in pointers(store) for target in one.pointer.targets}
        return [held for held in found if held.target.generation in named]
    chosen = [held for held in found if held.target.generation == generation]
    if not chosen:
        raise PublishError(f"generation {generation} is not in {store.url}")
    return chosen


def _only_rootfs(store: ObjectStore, flavor: str) -> str:
    found = [one.pointer.rootfs for one in pointers(store) if one.pointer.flavor == flavor]
    if len(found) != 1:
        raise PublishError(
            f"{store.url} has {len(found)} root filesystems for {flavor}"
            + (f": {', '.join(sorted(found))}; choose one with --rootfs" if found else "")
        )
    return found[0]
