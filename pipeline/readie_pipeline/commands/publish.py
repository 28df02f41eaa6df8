"""``readie-pipeline publish`` and ``keygen``: a generation into a bucket, signed."""

from pathlib import Path

import click

from readie_infra.bucket import SigningKey
from readie_infra.objects import ObjectStore
from readie_pipeline.commands.bucket_options import bucket_options
from readie_pipeline.commands.notifying import notify_options
from readie_pipeline.console import Terminal
from readie_pipeline.publish.publishing import publish as publish_stock
from readie_pipeline.publish.stocktaking import take_stock

MEGABYTE = 1_000_000


@click.command()
@bucket_options
@click.option(
    "--generation",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="The generation's folder, as a capture wrote it.",
)
@click.option(
    "--signing-key",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="READIE_SIGNING_KEY",
    help="Private key of the publisher, made with keygen.",
)
@click.option("--unsigned", is_flag=True, help="Publish without a signature.")
@click.option(
    "--allow-host-rootfs",
    is_flag=True,
    help="Publish what was captured on a machine's own root filesystem.",
)
@click.pass_obj
@notify_options
def publish(
    terminal: Terminal,
    *,
    store: ObjectStore,
    folder: Path,
    signing_key: Path | None,
    unsigned: bool,
    allow_host_rootfs: bool,
) -> None:
    """Put a generation into a bucket and make it the one that workers serve."""
    if (signing_key is None) != unsigned:
        raise click.UsageError("give either --signing-key FILE, or --unsigned")
    key = SigningKey.read(signing_key) if signing_key else None
    stock = take_stock(folder, terminal.track, allow_host_rootfs=allow_host_rootfs)
    done = publish_stock(store, stock, key, terminal.track)
    listed, pointer = done.listed, done.pointer
    place = f"{listed.flavor}/{listed.rootfs}"
    terminal.say(
        f"{len(listed.files)} files, {listed.size / MEGABYTE:.1f} MB; "
        f"{done.sent / MEGABYTE:.1f} MB went to {store.url}"
    )
    if done.unchanged:
        terminal.say(f"generation {listed.generation} is current for {place} already")
        return
    terminal.say(f"generation {listed.generation} is current for {place}")
    if pointer.previous is not None:
        terminal.say(f"it replaces {pointer.previous.generation}; `rollback` brings that back")


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="File of the private key; it must not exist.",
)
@click.pass_obj
def keygen(terminal: Terminal, *, out: Path) -> None:
    """Make a key to sign generations with; prints its public half, for workers."""
    terminal.say(SigningKey.create(out).public)
