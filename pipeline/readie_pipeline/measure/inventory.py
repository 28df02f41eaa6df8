"""What an interpreter has installed, asked of that interpreter itself."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from readie_pipeline.measure.interpreter import INVENTORY, Interpreter

_DEADLINE_S = 300.0  # reading the records of thousands of distributions from a slow disk


@dataclass(frozen=True, slots=True)
class Inventory:
    """``distributions`` maps canonical names to versions; ``packages`` are what can be imported.

    Of a namespace such as ``google`` its packages are listed, not the namespace.
    """

    interpreter: Interpreter
    python: str
    distributions: Mapping[str, str]
    packages: frozenset[str]

    @classmethod
    def take(cls, interpreter: Interpreter) -> Self:
        """Raises `MeasureError`: the interpreter does not work."""
        answer = interpreter.run(INVENTORY, {"modules": []}, _DEADLINE_S)
        return cls(
            interpreter, answer["python"], answer["distributions"], frozenset(answer["packages"])
        )

    def providers(self, modules: Iterable[str]) -> Mapping[str, str]:
        """Module to the distribution that provides it, empty when none does."""
        answer = self.interpreter.run(INVENTORY, {"modules": list(modules)}, _DEADLINE_S)
        providers: Mapping[str, str] = answer["providers"]
        return providers

    def existing(self, names: Iterable[str]) -> Mapping[str, str]:
        """Dotted name to the module in it that is installed: itself, or its nearest parent."""
        answer = self.interpreter.run(INVENTORY, {"modules": list(names)}, _DEADLINE_S)
        existing: Mapping[str, str] = answer["existing"]
        return {name: module for name, module in existing.items() if module}

    def fingerprint(self) -> str:
        """Changes with whatever may change a measurement."""
        facts = [str(self.interpreter.python), self.python, sorted(self.distributions.items())]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
