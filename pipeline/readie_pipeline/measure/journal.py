"""A prober that remembers, so that a run that was interrupted goes on where it was."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from readie_pipeline.journal import Journal
from readie_pipeline.measure.probing import Answer, Prober, ProbeRequest


class JournalledProber:
    """Asks ``inner`` only what the journal at ``path`` does not hold.

    ``environment`` identifies what is measured; a journal of another one is thrown away.
    """

    def __init__(self, inner: Prober, path: Path, environment: str) -> None:
        self._inner = inner
        self._journal = Journal(path, environment)

    def __call__(
        self, requests: Sequence[ProbeRequest], doing: str
    ) -> Iterator[tuple[ProbeRequest, Answer]]:
        open_requests = []
        for request in requests:
            known: Answer | None = self._journal.known.get(request.key())
            if known is None:
                open_requests.append(request)
            else:
                yield request, known
        for request, answer in self._inner(open_requests, doing):
            self._journal.add(request.key(), answer)
            yield request, answer

    def remove(self) -> None:
        """The run is complete."""
        self._journal.remove()
