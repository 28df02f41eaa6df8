"""Answers on disk as they come, so that a run that was interrupted goes on where it was."""

import json
from pathlib import Path
from typing import Any


class Journal:
    """Key to answer, one line each behind a first line that says what the answers are about.

    A journal about something else is thrown away. A line that was being written when its run ended
    is dropped; of two lines with one key the later counts. ``known`` is what the file holds.
    """

    def __init__(self, path: Path, about: str) -> None:
        self._path = path
        known = _read(path, about)
        if known is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_line(about), encoding="utf-8")
        self.known: dict[str, Any] = known or {}

    def add(self, key: str, answer: object) -> None:
        """Write it down, at once: the process may be killed right after."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(_line([key, answer]))
        self.known[key] = answer

    def remove(self) -> None:
        """The run is complete."""
        self._path.unlink(missing_ok=True)


def _line(value: object) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"


def _read(path: Path, about: str) -> dict[str, Any] | None:
    """What the journal holds; ``None`` when there is none about this."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    complete = data[: data.rfind(b"\n") + 1]
    if complete != data:
        path.write_bytes(complete)  # the run ended while it wrote the last line
    lines = complete.decode().splitlines(keepends=True)
    if not lines or lines[0] != _line(about):
        return None
    return dict(json.loads(line) for line in lines[1:])
