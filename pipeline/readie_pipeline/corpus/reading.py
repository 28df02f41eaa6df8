"""What code strings use: imports of Python text, of broken text as far as they can be seen."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from readie_pipeline.corpus.dataset import Resources
from readie_pipeline.corpus.finding import find_named
from readie_wire.extracting import extract_imports

_IMPORT_LINE = re.compile(r"\s*(?:import|from)\s+\w")


@dataclass(frozen=True, slots=True)
class Reading:
    """``problems`` has a sentence for each code string that was not read whole."""

    resources: Resources
    problems: tuple[str, ...] = ()


def read_code(codes: Sequence[str]) -> Reading:
    """What several code strings use that run one after the other; a broken one hides no other."""
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
    named = find_named(codes)
    resources = Resources(
        tuple(packages), tuple(candidates), named.datasets, named.models, named.tokenizers
    )
    return Reading(resources, tuple(problems))


def without_local(resources: Resources, local: Collection[str]) -> Resources:
    """Leave out modules that are the workload's own files, whatever public package has their name."""

    def kept(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name.partition(".")[0] not in local)

    return replace(
        resources, packages=kept(resources.packages), candidates=kept(resources.candidates)
    )


def _import_lines(code: str) -> list[str]:
    return [line.strip() for line in code.splitlines() if _IMPORT_LINE.match(line)]
