"""What the documents say about the repository is true of it."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from readie._cli import main as readie_commands
from readie_pipeline.cli import cli as pipeline_commands
from support.repository import ROOT, committed_files

PAGES = [path for path in committed_files() if path.suffix == ".md"]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE = re.compile(r"^```sh\n(.*?)^```|`([^`\n]+)`", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^(readie(?:-pipeline)?) ([a-z]+)\b(.*)$")
OPTION = re.compile(r"(?<!\S)(--[a-z-]+)")
TARGET = re.compile(r"^make ([a-z-]+)")
COMMANDS: dict[str, click.Group] = {
    "readie": readie_commands,
    "readie-pipeline": pipeline_commands,
}


def code_lines(page: Path) -> list[str]:
    """What is set as shell code: the lines of sh blocks, continued ones joined, and spans."""
    pieces = [block or span for block, span in CODE.findall(page.read_text())]
    return "\n".join(pieces).replace("\\\n", " ").splitlines()


def readable(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=readable)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert not [link for link in targets if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=readable)
def test_every_command_that_a_page_shows_exists_with_those_options(page: Path) -> None:
    unknown = []
    for line in code_lines(page):
        if not (shown := COMMAND.match(line)):
            continue
        program, name, rest = shown.groups()
        group = COMMANDS[program]
        command = group.get_command(click.Context(group), name)
        known = {
            option for parameter in (command.params if command else ()) for option in parameter.opts
        }
        if command is None or set(OPTION.findall(rest)) - known - {"--help"}:
            unknown.append(line)
    assert not unknown


@pytest.mark.parametrize("page", PAGES, ids=readable)
def test_every_make_target_that_a_page_shows_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {found[1] for line in code_lines(page) if (found := TARGET.match(line))}
    assert shown <= targets


def test_the_reference_is_what_the_code_says_now() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "docs/reference.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
