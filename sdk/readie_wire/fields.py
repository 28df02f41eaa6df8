"""Typed reading of JSON documents; what is wrong is named by its place."""

import json
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, Self

from readie_wire.briefly import brief
from readie_wire.versions import UnsupportedVersionError, require_readable


class Fields:
    """One JSON object at ``place``, such as ``manifest.checkpoints[2]``. Unknown keys are ignored.

    Every method raises ``error``. An absent number, list or object counts as empty, an absent text
    as its default.
    """

    def __init__(self, value: Any, place: str, error: type[ValueError]) -> None:
        if not isinstance(value, dict):
            raise error(f"{place} must be an object")
        self.value = value
        self.place = place
        self._error = error

    def check_version(self, readable: frozenset[int]) -> None:
        try:
            require_readable(self.place, self.value.get("version"), readable)
        except UnsupportedVersionError as error:
            raise self._error(str(error)) from error

    def text(self, key: str, default: str | None = None) -> str:
        found = self.value.get(key, default)
        return found if isinstance(found, str) else self._refuse(key, "a string")

    def number(self, key: str) -> float:
        found = self.value.get(key, 0.0)
        if type(found) not in (int, float) or not 0 <= found <= sys.float_info.max:
            return self._refuse(key, "a number, 0 or more")
        return float(found)

    def whole(self, key: str) -> int:
        found = self.value.get(key, 0)
        return found if type(found) is int and found >= 0 else self._refuse(key, "a whole number")

    def texts(self, key: str) -> tuple[str, ...]:
        found = self.value.get(key, [])
        if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
            return self._refuse(key, "a list of strings")
        return tuple(found)

    def object(self, key: str) -> dict[str, Any]:
        found = self.value.get(key, {})
        return found if isinstance(found, dict) else self._refuse(key, "an object")

    def part(self, key: str) -> Self:
        return type(self)(self.object(key), f"{self.place}.{key}", self._error)

    def parts(self, key: str) -> Sequence[Self]:
        found = self.value.get(key, [])
        if not isinstance(found, list):
            return self._refuse(key, "a list")
        return [
            type(self)(entry, f"{self.place}.{key}[{n}]", self._error)
            for n, entry in enumerate(found)
        ]

    def _refuse(self, key: str, expected: str) -> NoReturn:
        found = brief(self.value.get(key))
        raise self._error(f"{self.place}.{key} must be {expected}, not {found}")


def parse_json(data: bytes, place: str, error: type[ValueError]) -> Any:
    """The value of a whole document. Raises ``error``."""
    try:
        value = json.loads(data)
        # Half a surrogate pair is read as a string, and fails wherever that is stored or printed.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as problem:
        raise error(f"{place} is not JSON: {problem}") from problem
    return value
