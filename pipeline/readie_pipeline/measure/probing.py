"""One unit of measuring: import one module, or load one thing, behind others, in a fresh process."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, Self

from readie_pipeline.errors import MeasureError
from readie_pipeline.measure.interpreter import PROBE, Interpreter

# Goes through a sequence of names and may show how far it is.
Track = Callable[[Sequence[str], str], Iterable[str]]

# What `readie_pipeline.measure.inside.probe` answered, or ``{"error": reason}``.
Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """``module.function(path, **options)``; without a path where that is empty."""

    module: str
    function: str
    path: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """``before`` are imported first and not charged; ``repeat`` tells equal requests apart.

    With a ``call`` that is what is measured, and ``module`` is only its name.
    """

    module: str
    before: Sequence[str] = ()
    repeat: int = 0
    call: Call | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        call = Call(**value["call"]) if value["call"] else None
        return cls(value["module"], tuple(value["before"]), value["repeat"], call)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def key(self) -> str:
        return json.dumps(self.to_json(), separators=(",", ":"))


class Prober(Protocol):
    """Runs many probes. Never raises for what a package does: its answer then holds ``error``."""

    def __call__(
        self, requests: Sequence[ProbeRequest], doing: str
    ) -> Iterator[tuple[ProbeRequest, Answer]]: ...


@dataclass(frozen=True, slots=True)
class LocalProber:
    """One process after the other, so that measurements do not disturb each other.

    ``timeout`` in seconds for one of them.
    """

    interpreter: Interpreter
    timeout: float
    track: Track

    def __call__(
        self, requests: Sequence[ProbeRequest], doing: str
    ) -> Iterator[tuple[ProbeRequest, Answer]]:
        modules = self.track([request.module for request in requests], doing)
        for request, _ in zip(requests, modules, strict=True):
            yield request, probe(self.interpreter, request, self.timeout)


def probe(interpreter: Interpreter, request: ProbeRequest, timeout: float) -> Answer:
    try:
        answer: Answer = interpreter.run(PROBE, request.to_json(), timeout)
    except MeasureError as error:
        return {"error": str(error)}
    return answer
