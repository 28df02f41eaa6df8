"""What services have said about names, kept in the workspace so that nothing is asked twice."""

from datetime import date
from pathlib import Path

from readie_pipeline.journal import Journal

FRESH_DAYS = 30  # what does not exist may be published, and what exists be taken back

_ABOUT = "does it exist? 1"


class Answers:
    """Written as they come. ``today`` dates new ones and tells which are too old to count."""

    def __init__(self, path: Path, today: date) -> None:
        self._journal = Journal(path, _ABOUT)
        self._today = today.toordinal()

    def get(self, service: str, kind: str, name: str) -> bool | None:
        """``None``: it has not been said, or too long ago."""
        exists, day = self._journal.known.get(_key(service, kind, name), (None, 0))
        return None if self._today - day > FRESH_DAYS else exists

    def add(self, service: str, kind: str, name: str, *, exists: bool) -> None:
        self._journal.add(_key(service, kind, name), (exists, self._today))


def _key(service: str, kind: str, name: str) -> str:
    return f"{service} {kind} {name}"
