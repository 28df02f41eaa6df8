"""``readie run`` and ``readie explain``: a function of a script, called from the command line."""

import importlib.util
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from readie._client import last_receipt
from readie._errors import ConfigurationError, ReadieError
from readie._remote import RemoteFunction, remote
from readie_wire.outcome import Receipt


def run_target(target: str, args: Sequence[str], options: Sequence[str]) -> None:
    """Print the result on stdout; the receipt, and what the call prints, on stderr."""
    function, arguments = _load(target, options), _pairs(args, "--arg")
    try:
        value = function(**arguments)
    except ReadieError as error:
        raise click.ClickException(str(error)) from error
    except Exception as error:  # noqa: BLE001 - the function's own, whatever it is
        traceback.print_exception(error)
        sys.exit(1)
    click.echo(_shown(value))
    if (receipt := last_receipt()) is not None:
        click.echo(_summary(receipt), err=True)


def explain_target(target: str, args: Sequence[str], options: Sequence[str]) -> None:
    """Print what the call needs, and a line for each way to start it."""
    function, arguments = _load(target, options), _pairs(args, "--arg")
    try:
        answer = function.explain(**arguments)
    except ReadieError as error:
        raise click.ClickException(str(error)) from error
    console = Console()
    choice = answer.get("choice", {})
    chosen = choice.get("checkpoint") or "a cold start"
    console.print(
        f"needs   {', '.join(answer.get('imports', ())) or 'no packages'}", highlight=False
    )
    if unknown := answer.get("unknown"):
        console.print(f"unknown {', '.join(unknown)}: in no checkpoint", highlight=False)
    console.print(f"choice  {chosen}: {choice.get('reason', '')}", highlight=False)
    if quotes := answer.get("quotes"):
        console.print(_quotes(quotes))


def _load(target: str, options: Sequence[str]) -> RemoteFunction[..., Any]:
    file, separator, name = target.partition("::")
    if not separator or not name:
        raise click.UsageError(f"{target!r} must look like script.py::function")
    path = Path(file)
    if not path.is_file():
        raise click.UsageError(f"there is no file {file!r}")
    module = _import_script(path)
    found = getattr(module, name, None)
    if found is None:
        raise click.UsageError(f"{file} has no {name!r}")
    given = _pairs(options, "--option")
    try:
        function = found if isinstance(found, RemoteFunction) else remote(found)
        bound: RemoteFunction[..., Any] = function.bind(**given)
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error
    return bound


def _import_script(path: Path) -> object:
    """As ``python script.py`` would find its neighbours, without running its ``__main__`` part."""
    sys.path.insert(0, str(path.parent.absolute()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise click.UsageError(f"{path} is not a Python script")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _pairs(given: Sequence[str], what: str) -> dict[str, Any]:
    pairs = {}
    for each in given:
        name, separator, text = each.partition("=")
        if not separator or not name.isidentifier():
            raise click.UsageError(f"{what} {each!r} must look like name=value")
        try:
            pairs[name] = json.loads(text)
        except ValueError:
            pairs[name] = text
    return pairs


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


def _summary(receipt: Receipt) -> str:
    start = f"{receipt.start_kind or 'unknown'} start"
    if receipt.checkpoint:
        start += f" from {receipt.checkpoint}"
    if receipt.fallback_reason:
        start += f" ({receipt.fallback_reason})"
    times = f"imports {receipt.import_ms:.0f} ms, run {receipt.run_ms:.0f} ms"
    return f"{receipt.call_id}: {start}, {times}, total {receipt.total_ms:.0f} ms"


def _quotes(quotes: Sequence[Mapping[str, Any]]) -> Table:
    """A line for each way to start the call; what is missing would be imported during it."""
    table = Table("start", box=None)
    for column in ("size MB", "for size s", "for imports s", "total s"):
        table.add_column(column, justify="right")
    table.add_column("missing or refused", overflow="fold")
    for quote in quotes:
        numbers = [quote.get(key) for key in ("size_mb", "size_cost_s", "missing_s", "total_s")]
        remark = quote.get("refused") or ", ".join(quote.get("missing") or ())
        shown = ["" if number is None else f"{number:.3f}" for number in numbers]
        table.add_row(quote.get("checkpoint") or "cold", *shown, remark)
    return table
