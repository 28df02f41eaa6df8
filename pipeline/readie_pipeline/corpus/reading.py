"""What code strings use: imports of Python text, of broken text as far as they can be seen."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from readie_pipeline.corpus.dataset import Resources
from readie_wire.extracting import extract_imports

_IMPORT_LINE = re.compile(r"\s*(?:import|from)\s+\w")


@dataclass(frozen=True, slots=True)
class Reading:
    """``problems`` has a sentence for each code string that was not read whole."""

    resources: Resources
    problems: tuple[str, ...] = ()


def read_code(codes: Iterable[str]) -> Reading:
    """Imports of several code strings, one after the other; a broken one does not hide the rest."""
    packages: dict[str, None] = {}
    candidates: dict[str, None] = {}
    problems = []
    for code in codes:
        found = extract_imports(code)
        if found.problem:
            problems.append(found.problem)
        # Broken text is often an old dialect or a half-written line: its import lines still count.
        lines = _import_lines(code) if found.problem and not found.imports else ()
        for extraction in (found, *map(extract_imports, lines)):
            packages.update(dict.fromkeys(extraction.imports))
            candidates.update(dict.fromkeys(extraction.candidates))
    for name in packages:
        candidates.pop(name, None)
    return Reading(Resources(tuple(packages), tuple(candidates)), tuple(problems))


def without_local(resources: Resources, local: frozenset[str]) -> Resources:
    """Leave out modules that are the workload's own files, whatever public package has their name."""

    def kept(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name.partition(".")[0] not in local)

    return Resources(kept(resources.packages), kept(resources.candidates))


def _import_lines(code: str) -> list[str]:
    return [line.strip() for line in code.splitlines() if _IMPORT_LINE.match(line)]
