"""What a worker tells its supervisor: one line of JSON a note.

A note is shorter than a pipe's atomic write, so that threads may write them without a lock between.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LONGEST_NOTE = 4_096  # bytes: what POSIX systems of today write to a pipe in one piece


@dataclass(frozen=True, slots=True)
class Beat:
    """The worker's process runs."""


@dataclass(frozen=True, slots=True)
class ProcessNote:
    """A process whose descendants are sandboxes; it ends with them."""

    pid: int


@dataclass(frozen=True, slots=True)
class GroupNote:
    """A cgroup: every process in it or below belongs to sandboxes."""

    folder: Path


@dataclass(frozen=True, slots=True)
class AfterwardsNote:
    """A command that removes what is left of the sandboxes when the worker and they are gone."""

    command: Sequence[str]


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The worker has ended everything itself."""


Note = Beat | ProcessNote | GroupNote | AfterwardsNote | Goodbye


def encode(note: Note) -> bytes:
    """One line. `ValueError` where it would be too long to be written in one piece."""
    match note:
        case ProcessNote(pid):
            value: dict[str, object] = {"process": pid}
        case GroupNote(folder):
            value = {"group": str(folder)}
        case AfterwardsNote(command):
            value = {"afterwards": list(command)}
        case Goodbye():
            value = {"goodbye": True}
        case Beat():
            value = {"beat": True}
    line = json.dumps(value).encode() + b"\n"
    if len(line) > LONGEST_NOTE:
        raise ValueError(f"a note of {len(line)} bytes; the limit is {LONGEST_NOTE}")
    return line


def decode(line: bytes) -> Note:
    """The note in one line. `ValueError` for what no worker of this release writes."""
    match json.loads(line):
        case {"process": int(pid)}:
            return ProcessNote(pid)
        case {"group": str(folder)}:
            return GroupNote(Path(folder))
        case {"afterwards": [*command]}:
            return AfterwardsNote([str(word) for word in command])
        case {"goodbye": True}:
            return Goodbye()
        case {"beat": True}:
            return Beat()
    raise ValueError(f"not a note: {line[:100]!r}")
