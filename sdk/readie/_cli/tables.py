"""Tables of commands: the first column names the row, and is never cut or broken."""

import os

from rich.console import Console
from rich.table import Table

_FILE_WIDTH = 160  # columns where the output goes to a file or a pipe


def console() -> Console:
    """Standard output, as wide as the terminal is, or as COLUMNS says."""
    found = Console()
    fits = found.is_terminal or "COLUMNS" in os.environ
    return found if fits else Console(width=_FILE_WIDTH)


def table(key: str, *columns: str) -> Table:
    """Without lines, which would take room from what is told."""
    made = Table(box=None, pad_edge=False)
    made.add_column(key, no_wrap=True, overflow="ignore")
    for column in columns:
        made.add_column(column, overflow="fold")
    return made
