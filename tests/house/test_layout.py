"""The shape of the house: sizes, who reads the environment, what the repository may name."""

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.repository import PACKAGES, ROOT, committed_files, package_files

MODULE_LINES = 400
FUNCTION_LINES = 60
# A longer one is a decision, and its reason stands here.
LONGER = {
    "gateway/readie_gateway/openapi.py::_paths": "one table of all routes, without any logic",
}

# Who may read the environment: what is started as a process, and the settings that it hands on.
READS_THE_ENVIRONMENT = {"__main__", "cli", "_cli", "commands", "settings", "_settings"}
# The executor gives the code that it runs a fresh environment: there it is data, not settings.
FRESHENS_THE_ENVIRONMENT = {"executor"}

# Installs go through whatever index a machine is set up with.
REGISTRY_HOST = re.compile(
    r"\b(?:pypi|pythonhosted|npmjs|(?:deb|security|snapshot)\.debian|crates|quay|gcr)\.(?:org|com|io)\b"
)


def all_package_files() -> list[Path]:
    return [file for package in PACKAGES for file in package_files(package)]


def relative(file: Path) -> str:
    return str(file.relative_to(ROOT))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_modules_and_functions_stay_small_or_say_why() -> None:
    too_long = []
    for file in all_package_files():
        text = file.read_text()
        if (lines := text.count("\n")) > MODULE_LINES and relative(file) not in LONGER:
            too_long.append(f"{relative(file)}: {lines} lines")
        for function in functions(ast.parse(text)):
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            name = f"{relative(file)}::{function.name}"
            if lines > FUNCTION_LINES and name not in LONGER:
                too_long.append(f"{name}: {lines} lines")
    assert not too_long, "split it, or give the reason in LONGER"


def test_only_what_is_started_reads_the_environment() -> None:
    readers = [
        f"{relative(file)}:{node.lineno}"
        for file in all_package_files()
        if not READS_THE_ENVIRONMENT & set(file.relative_to(ROOT).with_suffix("").parts)
        and file.relative_to(ROOT).parts[0] not in FRESHENS_THE_ENVIRONMENT
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in {"environ", "environb", "getenv"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    ]
    assert not readers


@pytest.mark.parametrize("package", PACKAGES)
def test_each_component_folder_holds_its_python_packages_and_no_loose_module(package: str) -> None:
    folder = ROOT / PACKAGES[package]
    assert not [relative(file) for file in folder.glob("*.py")]
    assert (folder / package / "py.typed").is_file()
    assert ast.get_docstring(ast.parse((folder / package / "__init__.py").read_text()))


def test_every_module_says_what_it_is() -> None:
    silent = [
        relative(file)
        for file in all_package_files()
        if not ast.get_docstring(ast.parse(file.read_text())) and file.stat().st_size
    ]
    assert not silent


def test_the_public_names_are_those_that_all_lists_and_say_where_they_live() -> None:
    readie = importlib.import_module("readie")
    public = {
        name
        for name, value in vars(readie).items()
        if not name.startswith("_") and not isinstance(value, type(ast))
    }
    assert public == set(readie.__all__)
    assert sorted(readie.__all__) == sorted(set(readie.__all__))
    strangers = [
        f"{name} of {module}"
        for name in readie.__all__
        if (module := getattr(getattr(readie, name), "__module__", "readie")) != "readie"
    ]
    assert not strangers, "a traceback must say readie.X: set __module__ in readie/__init__.py"


def test_the_version_is_written_in_one_place() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    literal = re.compile(rf"""["']{re.escape(version)}["']""")
    assert not [relative(file) for file in all_package_files() if literal.search(file.read_text())]
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


def test_no_file_names_the_host_of_a_package_registry() -> None:
    naming = []
    for file in committed_files():
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        naming += [f"{relative(file)}: {found}" for found in REGISTRY_HOST.findall(text)]
    assert not naming
