"""Answers on disk as they come, so that a run that was interrupted goes on where it was."""

import json
from pathlib import Path
from typing import Any

from readie_pipeline.errors import OutputError


class Journal:
    """Key to answer, one line each behind a first line that says what the answers are about.

    A journal about something else is thrown away. A line that was being written when its run ended
    is dropped, and so is what a crash of the machine has left behind the last whole one; of two
    lines with one key the later counts. ``known`` is what the file holds. Raises `OutputError`
    where it cannot be written.
    """

    def __init__(self, path: Path, about: str) -> None:
        self._path = path
        try:
            known = _read(path, about)
            if known is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(_line(about), encoding="utf-8")
        except OSError as error:
            raise _unwritable(path, error) from error
        self.known: dict[str, Any] = known or {}

    def add(self, key: str, answer: object) -> None:
        """Write it down, at once: the process may be killed right after."""
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line([key, answer]))
        except OSError as error:
            raise _unwritable(self._path, error) from error
        self.known[key] = answer

    def remove(self) -> None:
        """The run is complete."""
        self._path.unlink(missing_ok=True)


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot write {path}: {error.strerror}; what is in it is kept")


def _line(value: object) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"


def _read(path: Path, about: str) -> dict[str, Any] | None:
    """What the journal holds; ``None`` when there is none about this."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    known: dict[str, Any] = {}
    whole = 0
    for number, line in enumerate(data.splitlines(keepends=True)):
        entry = _entry(line)
        if number == 0 and entry != about:
            return None
        if number and not _is_pair(entry):
            break
        if number:
            known[entry[0]] = entry[1]
        whole += len(line)
    if whole < len(data):
        path.write_bytes(data[:whole])
    return known if whole else None


def _entry(line: bytes) -> Any:
    """What a line holds; ``None`` for one that is not whole."""
    try:
        return json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)
