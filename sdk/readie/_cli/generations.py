"""``readie generations``: what is published, which worker has what of it, and what two differ in."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click
from rich.table import Table

from readie._cli import asking, tables
from readie._cli.generation_diff import difference
from readie._service import Service
from readie._steps import drive

MEGABYTE = 1_000_000
IMPORTS_SHOWN = 6  # of a checkpoint, in a table
ROOTFS_SHOWN = 12  # digits of a digest
UNKNOWN = "-"


def list_generations(*, as_json: bool) -> None:
    with asking.service() as service:
        told = drive(service.get("/generations"))
    if as_json:
        _print_json(told)
        return
    if told["bucket"] and told["bucket"]["error"]:
        click.echo(f"{told['bucket']['url']} cannot be read: {told['bucket']['error']}", err=True)
    if not told["generations"]:
        click.echo("no worker serves a generation, and none is published")
        return
    table = tables.table(
        *("generation", "flavor", "rootfs", "published", "checkpoints", "MB", "served by", "priced")
    )
    for one in told["generations"]:
        table.add_row(
            *(one["generation"], one["flavor"], (one["rootfs"] or UNKNOWN)[:ROOTFS_SHOWN]),
            *(_role(one), _restorable(one), _megabytes(one["size"])),
            *(_count(len(one["workers"]), "worker"), _priced(one)),
        )
    tables.console().print(table)
    for one in told["generations"]:
        _echo_arrivals(one)


def show_generation(generation: str, *, as_json: bool) -> None:
    with asking.service() as service:
        told = _one(service, generation)
    if as_json:
        _print_json(told)
        return
    click.echo(
        f"{told['generation']}  {told['flavor']}  {told['runtime']}  Python {told['python']}"
    )
    click.echo(f"root filesystem {told['rootfs'] or UNKNOWN}, {_megabytes(told['size'])} MB")
    click.echo(f"in the bucket: {_role(told)}; calls: {_priced(told) or 'not priced'}")
    _echo_arrivals(told)
    if told["error"]:
        click.echo(f"not all of it can be told: {told['error']}", err=True)
    console = tables.console()
    console.print(_checkpoint_table(told["checkpoints"], told["holding"]))
    if told["holding"]:
        console.print(_worker_table(told["holding"]))
    for line in _refusals(told["holding"]):
        click.echo(line)


def diff_generations(old: str, new: str, *, as_json: bool) -> None:
    with asking.service() as service:
        found = difference(_one(service, old), _one(service, new))
    if as_json:
        _print_json(found)
        return
    click.echo(f"from {found['old']} to {found['new']}")
    packages, checkpoints, sizes = found["packages"], found["checkpoints"], found["bytes"]
    for name, version in packages["added"].items() if packages else ():
        click.echo(f"+ {name} {version}")
    for name, version in packages["removed"].items() if packages else ():
        click.echo(f"- {name} {version}")
    for name, (before, after) in packages["changed"].items() if packages else ():
        click.echo(f"~ {name} {before} -> {after}")
    for sign, kind in (("+", "added"), ("-", "removed"), ("~", "changed")):
        for one in checkpoints[kind]:
            was = f", was {one['was']['id']}" if kind == "changed" else ""
            click.echo(f"{sign} {one['id']} ({_imports(one)}), {_megabytes(one['size'])} MB{was}")
    if packages is None:
        click.echo("the packages of one of them are not known")
    elif not any(packages.values()) and not any(checkpoints.values()):
        click.echo("the same packages and the same checkpoints")
    if sizes is not None:
        click.echo(
            f"{_megabytes(sizes['new'])} of {_megabytes(sizes['total'])} MB are new to a worker "
            f"that has {found['old']}"
        )


def _echo_arrivals(generation: Mapping[str, Any]) -> None:
    for one in generation["arriving"]:
        click.echo(
            f"{generation['generation']} arrives on {one['worker']}: {_megabytes(one['bytes'])} of "
            f"{_megabytes(one['of'])} MB"
        )


def _one(service: Service, generation: str) -> dict[str, Any]:
    return drive(service.get(f"/generations/{quote(generation, safe='')}"))


def _checkpoint_table(
    checkpoints: Sequence[Mapping[str, Any]], holding: Sequence[Mapping[str, Any]]
) -> Table:
    table = tables.table("checkpoint", "imports", "MB in memory", "MB on disk", "on workers")
    for one in checkpoints:
        table.add_row(
            *(one["id"], _imports(one)),
            UNKNOWN if one["size_mb"] is None else f"{one['size_mb']:.1f}",
            *(_megabytes(one["size"]), _where(one["id"], holding)),
        )
    return table


def _where(checkpoint: str, holding: Sequence[Mapping[str, Any]]) -> str:
    """On how many workers it is in which tier, and how many refuse it."""
    held = [one["checkpoints"][checkpoint] for one in holding if checkpoint in one["checkpoints"]]
    tiers = Counter(one["tier"] for one in held)
    told = [f"{tiers[tier]} {tier}" for tier in ("memory", "disk", "remote") if tiers[tier]]
    refusing = sum(one["refusal"] is not None for one in held)
    return ", ".join([*told, *([f"refused by {refusing}"] if refusing else [])]) or UNKNOWN


def _worker_table(holding: Sequence[Mapping[str, Any]]) -> Table:
    table = tables.table("worker", "host", "state", "memory", "disk", "remote", "ready", "refused")
    for one in holding:
        held = one["checkpoints"].values()
        tiers = Counter(checkpoint["tier"] for checkpoint in held)
        table.add_row(
            *(one["boot"], one["host"], one["state"]),
            *(str(tiers[tier]) for tier in ("memory", "disk", "remote")),
            str(sum(checkpoint["ready"] for checkpoint in held)),
            str(sum(checkpoint["refusal"] is not None for checkpoint in held)),
        )
    return table


def _refusals(holding: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each reason once, with what it is about."""
    about: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in holding:
        for name, checkpoint in one["checkpoints"].items():
            if checkpoint["refusal"] is not None:
                about[checkpoint["refusal"]["reason"]][one["boot"]].append(name)
    for reason, workers in about.items():
        for boot, names in workers.items():
            yield f"{boot} does not restore {', '.join(names)}: {reason}"


def _imports(checkpoint: Mapping[str, Any]) -> str:
    imports = checkpoint["imports"]
    if imports is None:
        return UNKNOWN
    more = len(imports) - IMPORTS_SHOWN
    return ", ".join(imports[:IMPORTS_SHOWN]) + (f", and {more} more" if more > 0 else "")


def _role(generation: Mapping[str, Any]) -> str:
    if generation["role"] != "current":
        return generation["role"] or UNKNOWN
    since = generation["published"]
    return f"current since {since[:4]}-{since[4:6]}-{since[6:8]} {since[9:11]}:{since[11:13]} UTC"


def _restorable(generation: Mapping[str, Any]) -> str:
    """Of its checkpoints, those that workers restore; all of them while nobody serves it."""
    restored, captured = len(generation["checkpoints"]), generation["captured"]
    return str(restored) if captured in (None, restored) else f"{restored} of {captured}"


def _priced(generation: Mapping[str, Any]) -> str:
    if generation["current"]:
        return "by default"
    return "yes" if generation["priced"] else ""


def _megabytes(size: int | None) -> str:
    return UNKNOWN if size is None else f"{size / MEGABYTE:.1f}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))
