"""Measuring in tests: nothing is too slow but what hangs on purpose."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from readie_pipeline.measure.interpreter import Interpreter
from readie_pipeline.measure.probing import Answer, ProbeRequest, probe

SURELY_S = 100.0  # only a hang meets it


@dataclass(frozen=True, slots=True)
class PatientProber:
    """One process after the other. ``hanging`` are the modules that get fewer seconds."""

    interpreter: Interpreter
    hanging: Mapping[str, float] = field(default_factory=dict)

    def __call__(
        self, requests: Sequence[ProbeRequest], doing: str
    ) -> Iterator[tuple[ProbeRequest, Answer]]:
        for request in requests:
            timeout = self.hanging.get(request.module, SURELY_S)
            yield request, probe(self.interpreter, request, timeout)
