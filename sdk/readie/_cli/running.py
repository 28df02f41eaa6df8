"""``readie run``: a function of a script, called from the command line."""

import importlib.util
import json
import sys
import traceback
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import click

from readie._client import last_receipt
from readie._errors import ConfigurationError, ReadieError
from readie._remote import RemoteFunction, remote
from readie_wire.outcome import Receipt


def run_target(target: str, args: Sequence[str], options: Sequence[str]) -> None:
    """Print the result on stdout; the receipt, and what the call prints, on stderr."""
    function, arguments = load_function(target, options), call_arguments(args)
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


def load_function(target: str, options: Sequence[str]) -> RemoteFunction[..., Any]:
    """The function that ``script.py::name`` names, with options. Raises `click.UsageError`."""
    file, separator, name = target.partition("::")
    if not separator or not name:
        raise click.UsageError(f"{target!r} must look like script.py::function")
    path = Path(file)
    if not path.is_file():
        raise click.UsageError(f"there is no file {file!r}")
    module = _import_script(path)
    try:
        found = attrgetter(name)(module)
    except AttributeError:
        raise click.UsageError(f"{file} has no {name!r}") from None
    given = _pairs(options, "--option")
    try:
        function = found if isinstance(found, RemoteFunction) else remote(found)
        bound: RemoteFunction[..., Any] = function.bind(**given)
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error
    return bound


def call_arguments(args: Sequence[str]) -> dict[str, Any]:
    """Those given as ``name=value``. Raises `click.UsageError`."""
    return _pairs(args, "--arg")


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
    if receipt.predicted_start_ms is not None and receipt.measured_start_ms is not None:
        start += f" in {receipt.measured_start_ms:.0f} ms"
        start += f", {receipt.predicted_start_ms:.0f} ms predicted"
    times = f"imports {receipt.import_ms:.0f} ms, run {receipt.run_ms:.0f} ms"
    return f"{receipt.call_id}: {start}, {times}, total {receipt.total_ms:.0f} ms"
