"""Answers on disk as they come, so that a run that was interrupted goes on where it was."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from readie_pipeline.measure.probing import Answer, Prober, ProbeRequest


class JournalledProber:
    """Asks ``inner`` only what the journal at ``path`` does not hold.

    ``environment`` identifies what is measured; a journal of another one is thrown away.
    """

    def __init__(self, inner: Prober, path: Path, environment: str) -> None:
        self._inner = inner
        self._path = path
        known = _read(path, environment)
        if known is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_line(environment), encoding="utf-8")
        self._known = known or {}

    def __call__(
        self, requests: Sequence[ProbeRequest], doing: str
    ) -> Iterator[tuple[ProbeRequest, Answer]]:
        open_requests = []
        for request in requests:
            known = self._known.get(request.key())
            if known is None:
                open_requests.append(request)
            else:
                yield request, known
        with self._path.open("a", encoding="utf-8") as file:
            for request, answer in self._inner(open_requests, doing):
                file.write(_line([request.key(), answer]))
                file.flush()
                self._known[request.key()] = answer
                yield request, answer

    def remove(self) -> None:
        """The run is complete."""
        self._path.unlink(missing_ok=True)


def _line(value: object) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"


def _read(path: Path, environment: str) -> dict[str, Answer] | None:
    """What the journal holds; ``None`` when there is none for this environment."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    complete = data[: data.rfind(b"\n") + 1]
    if complete != data:
        path.write_bytes(complete)  # the run ended while it wrote the last line
    lines = complete.decode().splitlines(keepends=True)
    if not lines or lines[0] != _line(environment):
        return None
    return dict(json.loads(line) for line in lines[1:])
