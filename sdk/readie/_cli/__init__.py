"""The ``readie`` command. What a subcommand needs is imported when it runs."""

from pathlib import Path
from typing import Literal

import click

from readie_wire.http import DEFAULT_PORT


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="readie")
def main() -> None:
    """Run Python functions on workers that have already imported what they need."""


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where queue, results, token and logs are kept.  [default: the user's data folder]",
)
@click.option(
    "--generations",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    envvar=["READIE_GENERATIONS_DIR", "ARTIFACTS_DIR"],
    help="A generation, or a folder with one for each flavor.",
)
@click.option(
    "--runtime",
    type=click.Choice(["auto", "gvisor", "fork"]),
    default="auto",
    show_default=True,
    help="How calls are isolated.",
)
@click.option(
    "--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Worker processes."
)
@click.option(
    "--slots",
    type=click.IntRange(1, 1024),
    help="Calls at a time of each worker.  [default: cores]",
)
@click.option(
    "--warm",
    "imports",
    multiple=True,
    metavar="MODULE,…",
    envvar="READIE_WARM",
    help="What a checkpoint that is made in the background imports; once for each.  "
    "[default: chosen by measuring this environment]",
)
@click.option(
    "--no-warm",
    is_flag=True,
    envvar="READIE_NO_WARM",
    help="Make no checkpoints in the background.",
)
def up(
    host: str,
    port: int,
    data_dir: Path | None,
    generations: Path | None,
    runtime: Literal["auto", "gvisor", "fork"],
    workers: int,
    slots: int | None,
    imports: tuple[str, ...],
    no_warm: bool,
) -> None:
    """Start Readie on this machine: gateway, queue and workers. Ctrl-C stops all of it."""
    from readie._cli.up import Wish, bring_up

    sets = [tuple(name.strip() for name in one.split(",")) for one in imports]
    bring_up(Wish(host, port, data_dir, generations, runtime, workers, slots, not no_warm, sets))


@main.command()
@click.argument("target", metavar="SCRIPT.PY::FUNCTION")
@click.option(
    "--arg", "args", multiple=True, metavar="NAME=VALUE", help="An argument; JSON or text."
)
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Such as memory=2G.")
def run(target: str, args: tuple[str, ...], options: tuple[str, ...]) -> None:
    """Run a function of a script remotely and print its result."""
    from readie._cli.running import run_target

    run_target(target, args, options)


@main.command()
@click.argument("target", metavar="SCRIPT.PY::FUNCTION")
@click.option(
    "--arg", "args", multiple=True, metavar="NAME=VALUE", help="An argument; JSON or text."
)
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Such as memory=2G.")
@click.option("--run", is_flag=True, help="Run it too, and hold the prediction against it.")
def explain(target: str, args: tuple[str, ...], options: tuple[str, ...], *, run: bool) -> None:
    """Show what a call would need and what each checkpoint would cost, without running it."""
    from readie._cli.explaining import explain_target

    explain_target(target, args, options, run=run)


@main.command()
def doctor() -> None:
    """Tell what this machine can do, what is missing, and how to get it."""
    from readie._cli.doctor import examine

    examine()


@main.group()
def dead() -> None:
    """Calls that came to nothing as often as they may: look at them, run or drop them."""


@dead.command("list")
def dead_list() -> None:
    """List them, the oldest first."""
    from readie._cli.dead import list_dead

    list_dead()


@dead.command("show")
@click.argument("call_id")
def dead_show(call_id: str) -> None:
    """Show why one was parked, and the last of what it printed."""
    from readie._cli.dead import show_dead

    show_dead(call_id)


@dead.command("requeue")
@click.argument("call_ids", metavar="CALL_ID...", nargs=-1, required=True)
def dead_requeue(call_ids: tuple[str, ...]) -> None:
    """Run them once more, under new ids."""
    from readie._cli.dead import requeue_dead

    requeue_dead(call_ids)


@dead.command("drop")
@click.argument("call_ids", metavar="CALL_ID...", nargs=-1, required=True)
def dead_drop(call_ids: tuple[str, ...]) -> None:
    """Forget them, and their payloads."""
    from readie._cli.dead import drop_dead

    drop_dead(call_ids)


@main.group()
def generations() -> None:
    """What is published to the fleet: list it, look at one, compare two."""


_as_json = click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")


@generations.command("list")
@_as_json
def generations_list(*, as_json: bool) -> None:
    """List those that are published or served, the newest first."""
    from readie._cli.generations import list_generations

    list_generations(as_json=as_json)


@generations.command("show")
@click.argument("generation")
@_as_json
def generations_show(generation: str, *, as_json: bool) -> None:
    """Show the checkpoints of one, what each worker has of them, and why it refuses some."""
    from readie._cli.generations import show_generation

    show_generation(generation, as_json=as_json)


@generations.command("diff")
@click.argument("old")
@click.argument("new")
@_as_json
def generations_diff(old: str, new: str, *, as_json: bool) -> None:
    """Compare two: packages, checkpoints, and the bytes that are new."""
    from readie._cli.generations import diff_generations

    diff_generations(old, new, as_json=as_json)
