"""The Python in a notebook file, cell by cell, without what only IPython understands."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

# Cell magics whose body is still Python; the body of any other (`%%bash`, `%%html`) is not.
_PYTHON_CELLS = frozenset({"capture", "prun", "time", "timeit"})
_LINE_MAGIC = re.compile(r"^(?P<indent>\s*)(?:[%!?]|[\w.,\[\] ]+=\s*[%!]|[\w.]+\?{1,2}\s*$)")


class NotebookError(ValueError):
    """The file is no notebook, or not one of Python."""


def python_cells(data: bytes) -> Sequence[str]:
    """The code cells of format 3 or 4. Raises `NotebookError`."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotebookError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise NotebookError("not a notebook")
    language = _language(value)
    if language != "python":
        raise NotebookError(f"its language is {language}")
    return [code for cell in _code_cells(value) if (code := without_magics(cell)).strip()]


def without_magics(cell: str) -> str:
    """The cell as plain Python: magics, shell lines and help lines do nothing."""
    first, _, rest = cell.lstrip().partition("\n")
    if first.startswith("%%"):
        magic = first[2:].split(maxsplit=1)
        if not magic or magic[0] not in _PYTHON_CELLS:
            return ""
        cell = rest
    return "\n".join(_plain(line) for line in cell.split("\n"))


def _plain(line: str) -> str:
    magic = _LINE_MAGIC.match(line)
    # `pass` keeps the block around it whole.
    return f"{magic['indent']}pass" if magic else line


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
