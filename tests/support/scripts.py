"""Users' scripts: source text run as ``python script.py``."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCRIPT_DEADLINE_S = 100.0


@dataclass(frozen=True, slots=True)
class Script:
    """How it ended and what it printed."""

    status: int
    out: str
    err: str


def run_script(source: str, folder: Path, environment: Mapping[str, str]) -> Script:
    """Run it in ``folder`` with `environment` on top of ours, and wait."""
    done = subprocess.run(
        [sys.executable, str(write_script(source, folder))],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SCRIPT_DEADLINE_S,
        check=False,
    )
    return Script(done.returncode, done.stdout, done.stderr)


def write_script(source: str, folder: Path, name: str = "script.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(source))
    return path
