"""Where the repository's own files are, for tests about the house itself."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Import package → its component folder.
PACKAGES = {
    "readie": "sdk",
    "readie_wire": "sdk",
    "readie_infra": "infra",
    "readie_gateway": "gateway",
    "readie_executor": "executor",
    "readie_worker": "worker",
    "readie_pipeline": "pipeline",
}


def package_files(package: str) -> list[Path]:
    return sorted((ROOT / PACKAGES[package] / package).rglob("*.py"))


def module_names(package: str) -> list[str]:
    """Every importable module of the package, itself first."""
    folder = ROOT / PACKAGES[package]
    names = []
    for file in package_files(package):
        parts = file.relative_to(folder).with_suffix("").parts
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(names)


def imported_names(file: Path) -> Iterator[str]:
    """The top-level name of every import in the file, those inside functions included."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def third_party(names: Iterator[str]) -> set[str]:
    return {name for name in names if name not in sys.stdlib_module_names and name not in PACKAGES}


def committed_files() -> list[Path]:
    """What git tracks here, or would if it were added; a file deleted but not committed is left out."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]
