"""``readie explain``: what a call needs, what every start of it would cost, and what one did cost."""

from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Console

from readie._cli import tables
from readie._cli.running import call_arguments, load_function
from readie._client import last_receipt
from readie._errors import ReadieError
from readie._remote import RemoteFunction
from readie_wire.extracting import How
from readie_wire.outcome import Receipt

STARTS_SHOWN = 20  # the cheapest ones; the cold start and the chosen one are always among them

_HOW: Mapping[str, str] = {
    How.IMPORT: "import",
    How.FROM: "from … import",
    How.CALL: "imported by a call",
    How.GLOBAL: "used",
    How.VALUE: "in an argument",
}


def explain_target(target: str, args: Sequence[str], options: Sequence[str], *, run: bool) -> None:
    """Print what the call needs and a line for each way to start it; with ``run``, hold it against one."""
    function, arguments = load_function(target, options), call_arguments(args)
    console = tables.console()
    try:
        answer = function.explain(**arguments)
    except ReadieError as error:
        raise click.ClickException(str(error)) from error
    _show_imports(console, answer)
    if answer["quotes"]:
        _show_starts(console, answer)
    _show_choice(console, answer)
    if run:
        _show_run(console, function, arguments)


def _show_imports(console: Console, answer: Mapping[str, Any]) -> None:
    items = {item["name"]: item for item in answer["items"]}
    seen = {one["name"]: one for one in answer["seen"]}
    table = tables.table("needs", "item", "distribution", "seen")
    for name in answer["imports"]:
        item = items.get(answer["matched"].get(name, ""), {})
        shown = item.get("name", "not priced")
        distribution = f"{item.get('distribution', '')} {item.get('version', '')}".strip()
        table.add_row(name, shown, distribution, _sighting(seen.get(name)))
    if answer["imports"]:
        console.print(table)
    else:
        _say(console, "needs     no packages")
    more = answer["items_count"] - len(set(answer["matched"].values()))
    if more > 0:
        _say(console, f"and {more} modules that come with them")
    if answer.get("modules"):
        _say(console, f"brings    {', '.join(answer['modules'])}: its own, sent along")
    if answer.get("dynamic"):
        _say(console, f"computes  names to import in {', '.join(answer['dynamic'])}: not priced")


def _sighting(seen: Mapping[str, Any] | None) -> str:
    if seen is None:
        return ""
    where = f" in {seen['function']}" if seen["function"] else ""
    file = f" of {seen['file']}" if seen["file"] else ""
    line = f", line {seen['line']}" if seen["line"] else ""
    return f"{_HOW.get(seen['how'], seen['how'])}{where}{line}{file}"


def _show_starts(console: Console, answer: Mapping[str, Any]) -> None:
    """A line for each way to start it: the terms of its price, then of the time it takes."""
    chosen = answer["choice"]["checkpoint"]
    quotes = sorted(answer["quotes"], key=lambda quote: quote["total_s"])
    shown = [
        quote
        for place, quote in enumerate(quotes)
        if place < STARTS_SHOWN or quote["checkpoint"] in (None, chosen)
    ]
    table = tables.table("start")
    for column in ("size\nMB", "for size\ns", "imports\ns", "price\ns", "fixed\ns", "predicted\ns"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("missing or refused", overflow="fold")
    for quote in shown:
        seconds = ("size_cost_s", "missing_s", "total_s", "fixed_s", "start_s")
        name = quote["checkpoint"] or "cold"
        table.add_row(
            f"> {name}" if quote["checkpoint"] == chosen else f"  {name}",
            f"{quote['size_mb']:.1f}",
            *(f"{quote[key]:.3f}" for key in seconds),
            _missing(quote),
        )
    console.print()
    console.print(table)
    if len(shown) < len(quotes):
        _say(console, f"  and {len(quotes) - len(shown)} that cost more")
    factor = answer["startup"]["import_factor"]
    per_mb = answer["startup"].get("per_mb", 0.0)  # a service of an earlier version tells none
    terms = ["fixed"]
    if any(quote["size_s"] for quote in quotes):
        terms += [f"{per_mb:g} s/MB for size" if per_mb else "size"]
    terms += [f"imports x {factor:g}" if factor != 1 else "imports"]
    _say(
        console,
        f"price = {answer['alpha']:g} s/MB for size + imports; "
        f"predicted = {' + '.join(terms)}, in {answer['runtime']}",
    )


def _missing(quote: Mapping[str, Any]) -> str:
    if quote["refused"]:
        return str(quote["refused"])
    more = quote["missing_count"] - len(quote["missing"])
    return ", ".join(quote["missing"]) + (f" and {more} more" if more else "")


def _show_choice(console: Console, answer: Mapping[str, Any]) -> None:
    choice = answer["choice"]
    console.print()
    found = f"{choice['checkpoint']} of {choice['generation']}" if choice["checkpoint"] else ""
    _say(console, f"choice    {found or 'a cold start'}: {choice['reason']}")
    if choice["predicted_start_s"] is not None:
        cold = f", cold {choice['cold_start_s']:.3f} s" if choice["checkpoint"] else ""
        _say(console, f"predicted {choice['predicted_start_s']:.3f} s until it runs{cold}")


def _show_run(
    console: Console, function: RemoteFunction[..., Any], arguments: Mapping[str, Any]
) -> None:
    problem = ""
    try:
        function(**arguments)
    except Exception as error:  # noqa: BLE001 - the function's own, whatever it is
        problem = f"; the call raised {type(error).__name__}: {error}"
    receipt = last_receipt()
    if receipt is None or receipt.measured_start_ms is None:
        raise click.ClickException(f"nothing was measured{problem}")
    _say(console, f"measured  {measured(receipt)}{problem}")


def measured(receipt: Receipt) -> str:
    """``0.312 s until it ran: restored from checkpoint_3, 0.300 s start, 0.012 s imports; …``."""
    origin = f" from {receipt.checkpoint}" if receipt.checkpoint else ""
    text = (
        f"{(receipt.measured_start_ms or 0.0) / 1000:.3f} s until it ran: "
        f"{receipt.start_kind or 'unknown'}{origin}, "
        f"{receipt.start_ms / 1000:.3f} s start, {receipt.import_ms / 1000:.3f} s imports"
    )
    if receipt.fallback_reason:
        text += f" ({receipt.fallback_reason})"
    if receipt.predicted_start_ms and receipt.measured_start_ms is not None:
        error = receipt.predicted_start_ms - receipt.measured_start_ms
        text += f"; predicted {abs(error) / 1000:.3f} s {'more' if error > 0 else 'less'}"
    return text


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
