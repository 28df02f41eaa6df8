"""``readie dead``: calls that came to nothing as often as they may, for an operator to decide on."""

from datetime import UTC, datetime
from typing import Any

import click

from readie._cli import asking, tables
from readie._steps import drive


def list_dead() -> None:
    with asking.service() as service:
        letters = drive(service.get("/dead"))["dead"]
    if not letters:
        click.echo("no dead letters")
        return
    table = tables.table("call", "function", "attempts", "parked", "reason")
    for letter in letters:
        first_line = letter["reason"].partition("\n")[0]
        table.add_row(
            letter["call_id"],
            letter["function"],
            str(letter["attempts"]),
            _time(letter["parked_ms"]),
            first_line,
        )
    tables.console().print(table)


def show_dead(call_id: str) -> None:
    with asking.service() as service:
        letter = drive(service.get(f"/dead/{call_id}"))
    click.echo(f"{letter['call_id']}  {letter['function']}  on {letter['flavor']}")
    click.echo(f"parked {_time(letter['parked_ms'])} after {letter['attempts']} attempts")
    click.echo(f"reason: {letter['reason']}")
    if letter["last_words"]:
        click.echo(f"the last of what it printed:\n{letter['last_words'].rstrip()}")
    if letter["call"] is None:
        click.echo("its record cannot be read: it can be dropped, and not requeued")


def requeue_dead(call_ids: tuple[str, ...]) -> None:
    with asking.service() as service:
        for call_id in call_ids:
            click.echo(f"{call_id} runs again as {drive(service.requeue(call_id))}")


def drop_dead(call_ids: tuple[str, ...]) -> None:
    with asking.service() as service:
        for call_id in call_ids:
            drive(service.drop_dead(call_id))
            click.echo(f"{call_id} is dropped")


def _time(milliseconds: Any) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
