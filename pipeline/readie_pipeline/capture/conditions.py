"""What a checkpoint depends on besides its imports, to tell machines apart that must be alike."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

_SHOWN = 16  # characters of a digest that tell two apart


@dataclass(frozen=True, slots=True)
class Conditions:
    """``facts`` must be equal, by the names that people know them by.

    ``cpu_features``: what is captured with some of them is restored only where they are.
    """

    facts: Mapping[str, str]
    cpu_features: Sequence[str] = ()

    def obstacle(self, elsewhere: Self) -> str | None:
        """Why what is captured under these conditions could not be restored ``elsewhere``."""
        for name in sorted(self.facts.keys() | elsewhere.facts.keys()):
            ours, theirs = self.facts.get(name, "none"), elsewhere.facts.get(name, "none")
            if ours != theirs:
                return f"its {name} is {ours[:_SHOWN]}, there it is {theirs[:_SHOWN]}"
        if more := sorted(set(self.cpu_features) - set(elsewhere.cpu_features)):
            return f"its CPU has features that are missing there: {' '.join(more)}"
        return None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(value["facts"], value["cpu_features"])
