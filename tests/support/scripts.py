"""Users' scripts: source text run as ``python script.py``."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SCRIPT_DEADLINE_S = 250.0
TERMINAL_COLUMNS = "300"  # so that no line of a table is broken


@dataclass(frozen=True, slots=True)
class Script:
    """How it ended and what it printed."""

    status: int
    out: str
    err: str


def run_script(source: str, folder: Path, environment: Mapping[str, str]) -> Script:
    """Run it in ``folder`` with `environment` on top of ours, and wait."""
    return _run([str(write_script(source, folder))], folder, environment)


def run_module(module: str, *words: object, folder: Path, environment: Mapping[str, str]) -> Script:
    """Run ``python -m module`` in ``folder`` with `environment` on top of ours, and wait."""
    return _run(["-m", module, *map(str, words)], folder, environment)


def write_script(source: str, folder: Path, name: str = "script.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(source))
    return path


def _run(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Script:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "COLUMNS": TERMINAL_COLUMNS, **environment},
        capture_output=True,
        text=True,
        timeout=SCRIPT_DEADLINE_S,
        check=False,
    )
    return Script(done.returncode, done.stdout, done.stderr)
