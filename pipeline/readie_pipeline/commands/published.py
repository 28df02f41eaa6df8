"""``readie-pipeline list``, ``verify``, ``rollback`` and ``gc``: what a bucket holds."""

from collections.abc import Iterator, Sequence

import click
from rich.table import Table
from rich.text import Text

from readie_infra.bucket import Bucket, Trust
from readie_infra.bucket.surveying import Held, Pointers, generations, pointers
from readie_infra.objects import ObjectStore
from readie_pipeline.commands import options
from readie_pipeline.commands.bucket_options import bucket_options, trust_options
from readie_pipeline.commands.notifying import notify_options
from readie_pipeline.console import Terminal
from readie_pipeline.errors import PublishError
from readie_pipeline.publish.checking import Fault, faults
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
    named, there = pointers(store), generations(store, trust)
    table = Table("generation", "flavor", "rootfs", "files", "MB", "state", box=None)
    for held in there:
        listed = held.listed
        table.add_row(
            *(held.target.generation, held.flavor, listed.rootfs[:12] if listed else "?"),
            *((str(len(listed.files)), f"{listed.size / MEGABYTE:.1f}") if listed else ("?", "?")),
            Text(_state(held, named.found)),
        )
    if there:
        terminal.out.print(table)
    for problem in _unserved(named, there):
        terminal.warn(problem)
    if not there and not named.refused:
        terminal.say(f"nothing is published in {store.url}")


@click.command()
@bucket_options
@trust_options
@click.option("--generation", help="Only this one.  [default: all that pointers name]")
@click.option(
    "--delete-damaged",
    is_flag=True,
    help="Delete objects whose bytes are not what was signed; publishing again then brings them.",
)
@click.pass_obj
def verify(
    terminal: Terminal,
    *,
    store: ObjectStore,
    trust: Trust,
    generation: str | None,
    delete_damaged: bool,
) -> None:
    """Fetch published files and compare them with what was signed."""
    named, there = pointers(store), generations(store, trust)
    wrong = [] if generation else list(_unserved(named, there))
    for problem in wrong:
        terminal.say(problem)
    damaged = False
    for held in _chosen(store, named, there, generation):
        found = _faults(terminal, store, trust, held)
        for fault in found:
            terminal.say(f"{held.target.generation}: {fault.reason}")
            damaged |= fault.damaged
            if fault.damaged and delete_damaged:
                store.delete(fault.key)
                terminal.say(f"{fault.key} is deleted")
        if found:
            wrong.append(held.target.generation)
        else:
            terminal.say(f"{held.target.generation}: every file is as it was published")
    if wrong:
        first = "run verify with --delete-damaged, then " if damaged and not delete_damaged else ""
        raise PublishError(
            f"{len(wrong)} of what is published cannot be used as it was meant to be; {first}"
            "publish it again from the folder that it was captured to"
        )


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
    if done.unfinished:
        terminal.say(f"{done.unfinished} uploads of killed publishers removed")
    if done.problem:
        terminal.warn(f"uploads of killed publishers were not looked for: {done.problem}")


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


def _unserved(named: Pointers, there: Sequence[Held]) -> Iterator[str]:
    """Why what pointers name, or should, cannot be served by anybody."""
    yield from named.refused
    manifests = {(held.flavor, held.target.generation): held.target for held in there}
    for pointer in named.found:
        for target in pointer.targets:
            role = "current" if target == pointer.target else "previous"
            found = manifests.get((pointer.flavor, target.generation))
            if found != target:
                what = "is gone" if found is None else "is not the one that was pointed to"
                yield (
                    f"the manifest of {target.generation}, which is {role} for "
                    f"{pointer.flavor}/{pointer.rootfs}, {what}"
                )


def _chosen(
    store: ObjectStore, named: Pointers, there: Sequence[Held], generation: str | None
) -> Sequence[Held]:
    if generation is None:
        wanted = {target.generation for one in named.found for target in one.targets}
        if not wanted and not named.refused:
            raise PublishError(f"nothing is published in {store.url}")
    else:
        wanted = {generation}
    chosen = [held for held in there if held.target.generation in wanted]
    if generation and not chosen:
        raise PublishError(f"generation {generation} is not in {store.url}")
    return chosen


def _faults(terminal: Terminal, store: ObjectStore, trust: Trust, held: Held) -> Sequence[Fault]:
    if held.listed is None:
        return [Fault(held.key, held.reason, damaged=False)]
    return faults(Bucket(store, trust), held.listed, terminal.track)


def _only_rootfs(store: ObjectStore, flavor: str) -> str:
    found = sorted(one.rootfs for one in pointers(store).found if one.flavor == flavor)
    if not found:
        raise PublishError(f"nothing is published for {flavor} in {store.url}")
    if len(found) > 1:
        raise PublishError(
            f"{store.url} has {len(found)} root filesystems for {flavor}: {', '.join(found)}; "
            "choose one with --rootfs"
        )
    return found[0]
