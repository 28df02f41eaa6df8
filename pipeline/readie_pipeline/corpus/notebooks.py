"""The Python in a notebook file, cell by cell, without what only IPython understands."""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

# Cell magics whose body is still Python; the body of any other (`%%bash`, `%%html`) is not.
_PYTHON_CELLS = frozenset({"capture", "prun", "time", "timeit"})
_WRITING_CELLS = frozenset({"file", "writefile"})
_LINE_MAGIC = re.compile(r"^(?P<indent>\s*)(?:[%!?]|[\w.,\[\] ]+=\s*[%!])")
_TIMED = re.compile(r"^(?P<indent>\s*)%time\s+(?P<code>[^\s-].*)$")
_HELP = re.compile(r"(?:^|;)\s*[\w.]+\?{1,2}\s*$")


class NotebookError(ValueError):
    """The file is no notebook, or not one of Python."""


def python_cells(data: bytes) -> Sequence[str]:
    """The code cells of format 3 or 4. Raises `NotebookError`."""
    return [code for cell in _cells(data) if (code := without_magics(cell)).strip()]


def written_modules(data: bytes) -> frozenset[str]:
    """Names of the modules that its cells write to files: its own. Raises `NotebookError`."""
    written: set[str] = set()
    for cell in _cells(data):
        magic, words, _ = _cell_magic(cell)
        if magic in _WRITING_CELLS and words and words[-1].endswith(".py"):
            file = PurePosixPath(words[-1]).with_suffix("")
            # Of a place elsewhere on the machine, the folders above it are no packages of its own.
            parts = [file.name] if file.is_absolute() else file.parts
            written.update(part for part in parts if part.isidentifier())
    return frozenset(written)


def without_magics(cell: str) -> str:
    """The cell as plain Python: magics, shell lines and help lines do nothing.

    What a cell writes to a Python file counts as its code, for it is there to be imported.
    """
    magic, words, rest = _cell_magic(cell)
    if magic in _WRITING_CELLS and words and words[-1].endswith(".py"):
        return rest
    if magic is not None and magic not in _PYTHON_CELLS:
        return ""
    return rest if _is_python(rest) else "\n".join(_plain(rest.split("\n")))


def _cell_magic(cell: str) -> tuple[str | None, Sequence[str], str]:
    """Its name with the words after it, ``None`` without one; and the rest of the cell."""
    first, _, rest = cell.lstrip().partition("\n")
    if not first.startswith("%%"):
        return None, (), cell
    name, *words = first[2:].split() or [""]
    return name, words, rest


def _is_python(code: str) -> bool:
    """As it stands: then a line that begins with ``%`` goes on with the one before it."""
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _plain(lines: Iterable[str]) -> Iterator[str]:
    goes_on = False  # a shell line or magic that ended with a backslash
    for line in lines:
        timed, magic, asked = _TIMED.match(line), _LINE_MAGIC.match(line), _HELP.search(line)
        if goes_on:
            yield ""
        elif timed:
            yield timed["indent"] + timed["code"]
        elif magic:
            # `pass` keeps the block around it whole.
            yield f"{magic['indent']}pass"
        elif asked:
            yield line[: asked.start()] or f"{line[: len(line) - len(line.lstrip())]}pass"
        else:
            yield line
        goes_on = (goes_on or bool(magic)) and line.rstrip().endswith("\\")


def _cells(data: bytes) -> Iterator[str]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotebookError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise NotebookError("not a notebook")
    language = _language(value)
    if language != "python":
        raise NotebookError(f"its language is {language}")
    yield from _code_cells(value)


def _language(notebook: dict[str, Any]) -> str:
    metadata = notebook.get("metadata")
    if not isinstance(metadata, dict):
        return "python"
    for place, key in (("language_info", "name"), ("kernelspec", "language")):
        found = metadata.get(place)
        if isinstance(found, dict) and isinstance(found.get(key), str):
            return str(found[key]).lower()
    return "python"


def _code_cells(notebook: dict[str, Any]) -> Iterator[str]:
    sheets = notebook.get("worksheets")
    pages = [notebook, *(sheets if isinstance(sheets, list) else ())]
    for page in pages:
        cells = page.get("cells") if isinstance(page, dict) else None
        for cell in cells if isinstance(cells, list) else ():
            if isinstance(cell, dict) and cell.get("cell_type") == "code":
                source = cell.get("source", cell.get("input", ""))
                yield "".join(map(str, source)) if isinstance(source, list) else str(source)
