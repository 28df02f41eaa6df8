"""Write docs/reference/ from the code: settings, commands, HTTP routes, metrics, errors.

python docs/reference.py           writes the pages
python docs/reference.py --check   writes nothing; exit 1 names the pages that are out of date
"""

import argparse
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import readie
from readie._cli import main as readie_commands
from readie_gateway.app import create_app
from readie_gateway.auth import Tokens
from readie_gateway.bucket_view import BucketView
from readie_gateway.catalogues import Catalogues
from readie_gateway.fleet import FleetWatch
from readie_gateway.metrics import Metrics
from readie_gateway.openapi import openapi_document
from readie_gateway.options import CallOptions
from readie_gateway.services import Limits, Services
from readie_gateway.sessions import SessionBook
from readie_gateway.settings import GatewaySettings
from readie_gateway.waiting import WaitingBoard
from readie_infra.connecting import connect
from readie_infra.objects import open_objects
from readie_infra.store import CallStore
from readie_pipeline.cli import cli as pipeline_commands
from readie_wire.http import ProblemCode
from readie_worker.settings import WorkerSettings

REFERENCE = Path(__file__).resolve().parent / "reference"
CLIENT_SETTINGS = """\
## Client: `import readie`, `readie run`

| variable | default | what |
|---|---|---|
| `READIE_URL` | what `readie up` left in the user's data folder | Address of the gateway. |
| `READIE_AUTH_TOKEN` | as above | The bearer token. |
"""
NOTICE = "<!-- Written by `make docs-reference` from the code; edit the code instead. -->\n"


def settings_page() -> str:
    sections: list[tuple[str, type[BaseModel]]] = [
        ("Gateway: `python -m readie_gateway`", GatewaySettings),
        ("Worker: `python -m readie_worker`", WorkerSettings),
    ]
    lines = ["# Settings", "", "Every setting is an environment variable.", ""]
    for title, settings in sections:
        lines += [f"## {title}", "", *fields_table(settings, "variable"), ""]
    return "\n".join([*lines, CLIENT_SETTINGS])


def fields_table(model: type[BaseModel], heading: str) -> Iterator[str]:
    """Name, default and description of each field; of settings, the environment variable."""
    yield f"| {heading} | default | what |"
    yield "|---|---|---|"
    prefix = str(model.model_config.get("env_prefix", ""))
    for name, field in model.model_fields.items():
        written = field.validation_alias or (f"{prefix}{name}".upper() if prefix else name)
        yield f"| `{written}` | {default_of(field)} | {cell(field.description or '')} |"


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory in (list, dict):
        return "empty"
    if field.default_factory is not None:
        return "depends on the machine"
    return "none" if field.default is None else f"`{json.dumps(field.default)}`".replace('"', "")


def commands_page() -> str:
    lines = ["# Command line", ""]
    lines += command_section("readie", readie_commands, level=2)
    lines += command_section("readie-pipeline", pipeline_commands, level=2)
    return "\n".join(lines)


def command_section(path: str, command: click.Command, level: int) -> list[str]:
    context = click.Context(command, info_name=path)
    lines = [f"{'#' * level} `{path}`", "", inspect.cleandoc(command.help or ""), ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            if member is not None and not member.hidden:
                lines += command_section(f"{path} {name}", member, level + 1)
        return lines
    usage = " ".join(command.collect_usage_pieces(context))
    lines += ["```", f"{path} {usage}", "```", ""]
    records = [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
        and "--help" not in parameter.opts
        and (record := parameter.get_help_record(context))
    ]
    if records:
        lines += ["| option | what |", "|---|---|"]
        lines += [f"| `{cell(option)}` | {cell(what)} |" for option, what in records] + [""]
    return lines


def errors_page() -> str:
    lines = ["# Errors", "", "What `readie` raises, as a tree.", "", "```"]
    lines += tree(readie.ReadieError)
    lines += ["```", "", "## Problem codes", ""]
    lines += ["A refusal of the HTTP API is `application/problem+json`; its `code` is one of:", ""]
    lines += [", ".join(f"`{code}`" for code in ProblemCode) + ".", ""]
    return "\n".join(lines)


def tree(error: type[BaseException], depth: int = 0) -> Iterator[str]:
    first_line = (inspect.getdoc(error) or "").partition("\n")[0]
    yield f"{'  ' * depth + error.__name__:<36} {first_line}".rstrip()
    public = set(readie.__all__)
    for child in sorted(error.__subclasses__(), key=lambda child: child.__name__):
        if child.__name__ in public:
            yield from tree(child, depth + 1)


def routes_page() -> str:
    described = openapi_document()
    lines = ["# HTTP API", "", "The whole schema is what a gateway serves at `/openapi.json`.", ""]
    lines += ["| route | what | answers |", "|---|---|---|"]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            answers = ", ".join(status for status in operation["responses"] if status.isdecimal())
            lines.append(
                f"| `{method.upper()} {path}` | {cell(operation['summary'])} | {answers} |"
            )
    lines += ["", "## Options of a call", "", *fields_table(CallOptions, "option")]
    return "\n".join([*lines, ""])


def metrics_page() -> str:
    lines = ["# Metrics", "", "What a gateway tells Prometheus at `/metrics`.", ""]
    lines += ["| metric | type | labels | what |", "|---|---|---|---|"]
    for name, kind, labels, what in sorted(metrics()):
        shown = ", ".join(f"`{label}`" for label in labels)
        lines.append(f"| `{name}` | {kind} | {shown} | {cell(what)} |")
    return "\n".join([*lines, ""])


def metrics() -> Iterator[tuple[str, str, Sequence[str], str]]:
    """Name, type, labels and help of each family of a gateway that follows a bucket."""
    bucket = BucketView(open_objects("file:///nowhere"))
    store = CallStore(connect("redis://nowhere"))
    catalogues = Catalogues()
    services = Services(
        store=store,
        blobs=None,
        catalogues=catalogues,
        fleet=FleetWatch(store, catalogues),
        board=WaitingBoard(store, "gateway"),
        metrics=Metrics(),
        limits=Limits(),
        sessions=SessionBook(store),
        bucket=bucket,
    )
    create_app(services, Tokens({}))
    # The library tells labels only along with values, so what it keeps for itself is read.
    for collector in services.metrics._registry._collector_to_names:
        kept = hasattr(collector, "_labelnames")
        described: Iterable[Any] = [collector] if kept else collector.collect()
        for one in described:
            name = one._name if kept else one.name
            kind = one._type if kept else one.type
            text = one._documentation if kept else one.documentation
            yield f"{name}_total" if kind == "counter" else name, kind, one._labelnames, text


PAGES: Mapping[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "command-line.md": commands_page,
    "http-api.md": routes_page,
    "metrics.md": metrics_page,
    "errors.md": errors_page,
}


def cell(text: Any) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def rendered() -> Iterator[tuple[Path, str]]:
    for name, write in PAGES.items():
        text = write()
        yield REFERENCE / name, (NOTICE + text if name.endswith(".md") else text)


def out_of_date(pages: Iterable[tuple[Path, str]]) -> list[str]:
    return [path.name for path, text in pages if not path.is_file() or path.read_text() != text]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when stale")
    check = parser.parse_args().check
    pages = list(rendered())
    if check:
        stale = out_of_date(pages)
        if stale:
            print(f"out of date, run `make docs-reference`: {', '.join(stale)}")
        return 1 if stale else 0
    REFERENCE.mkdir(exist_ok=True)
    for path, text in pages:
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
