"""Workloads from a file of import sets, one JSON object a line: ``{"id", "kind", "imports"}``."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from readie_pipeline.corpus.dataset import Resources, Workload, can_be_imported
from readie_pipeline.errors import CorpusError
from readie_wire.extracting import is_standard_library


def read_import_sets(path: Path) -> Iterator[Workload]:
    """The workloads of the file, in its order; empty lines are skipped. Raises `CorpusError`."""
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _read(path, number, line)
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path}: {error}") from error


def _read(path: Path, number: int, line: str) -> Workload:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise CorpusError(f"{path}, line {number}: not JSON: {error}") from error
    names: Any = value.get("imports") if isinstance(value, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CorpusError(f"{path}, line {number}: imports must be a list of module names")
    if no_modules := [name for name in names if not can_be_imported(name)]:
        raise CorpusError(f"{path}, line {number}: {no_modules[0][:80]!r} is no name of a module")
    return Workload(
        id=str(value.get("id", number)),
        source=f"{path.name}:{number}",
        resources=Resources(
            tuple(dict.fromkeys(name for name in names if not is_standard_library(name)))
        ),
        domain=str(value.get("kind", "")),
    )
