"""Version numbers of everything two processes exchange, and which of them a reader accepts.

A writer writes the current number. A reader accepts the numbers listed as readable, so that a fleet
can be upgraded one process at a time; anything else is refused by name, never guessed at.
"""

import sys

from readie_wire.briefly import brief

ENVELOPE_VERSION = 1  # call records, call headers, worker records (field ``v``)
READABLE_ENVELOPES = frozenset({1})

PROTOCOL_VERSION = 3  # frames between worker and executor; written to manifest.json
READABLE_PROTOCOLS = frozenset({3})

CATALOGUE_VERSION = 2  # catalogue.json
MANIFEST_VERSION = 1  # manifest.json and meta.json
PUBLICATION_VERSION = 1  # every document of a bucket


class UnsupportedVersionError(ValueError):
    """A message or file carries a version this build does not read."""

    def __init__(self, what: str, found: object, readable: frozenset[int]) -> None:
        accepted = ", ".join(str(number) for number in sorted(readable))
        super().__init__(f"{what} has version {brief(found)}; this build reads {accepted}")
        self.what = what
        self.found = found
        self.readable = readable


def require_readable(what: str, found: object, readable: frozenset[int]) -> None:
    """Raise `UnsupportedVersionError` unless ``found`` is one of the ``readable`` numbers."""
    if type(found) is not int or found not in readable:
        raise UnsupportedVersionError(what, found, readable)


def python_minor(version: str | None = None) -> str:
    """``"3.11.7"`` → ``"3.11"``; without an argument, of the running interpreter.

    Pickled code objects travel only between equal minor versions.
    """
    if version is None:
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    return ".".join(version.split(".")[:2])
