"""What a caller sends and what a worker gets: the header of a call, and its options.

The same header opens ``application/vnd.readie.call`` (SDK → gateway) and, completed by the worker,
the CALL message (worker → executor). It never holds a secret's value except on that last leg.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from readie_wire.versions import ENVELOPE_VERSION, READABLE_ENVELOPES, require_readable

MAX_IMPORTS = 2_000  # names; a longer list is an accident, and pricing it would cost the gateway


class CallKind(StrEnum):
    """What the body of a call is.

    ``pickle``: cloudpickle of ``{"func", "args", "kwargs"}``. ``source``: JSON of ``{"source",
    "entrypoint", "args", "kwargs"}``. ``function``: JSON of ``{"function": "pkg.mod:name", "args",
    "kwargs"}``. Results of the last two are JSON.
    """

    PICKLE = "pickle"
    SOURCE = "source"
    FUNCTION = "function"


class InvalidEnvelopeError(ValueError):
    """A header field is missing or has the wrong type; ``field`` names it."""

    def __init__(self, field_name: str, problem: str) -> None:
        super().__init__(f"{field_name}: {problem}")
        self.field = field_name


@dataclass(frozen=True, slots=True)
class CallHeader:
    """The header of one call.

    ``python`` is the caller's ``"3.11"`` (pickle only, else empty). ``imports`` are dotted module
    names found in the function; ``distributions`` maps those that the caller has installed to
    versions, for error messages about mismatches. ``modules`` are top-level names of the caller's own
    modules that travel in the payload. ``options`` are the caller's, unvalidated.
    """

    kind: CallKind
    function: str
    python: str = ""
    imports: Sequence[str] = ()
    distributions: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    client: str = ""
    version: int = ENVELOPE_VERSION
    modules: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "v": self.version,
            "kind": str(self.kind),
            "function": self.function,
            "python": self.python,
            "imports": list(self.imports),
            "distributions": dict(self.distributions),
            "modules": list(self.modules),
            "options": dict(self.options),
            "client": self.client,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Checks types; ignores unknown keys, which a newer caller may send.

        Raises `UnsupportedVersionError` and `InvalidEnvelopeError`.
        """
        require_readable("the call header", value.get("v"), READABLE_ENVELOPES)
        kind = _typed(value, "kind", str, "")
        if kind not in set(CallKind):
            choices = ", ".join(CallKind)
            raise InvalidEnvelopeError("kind", f"is {kind!r}; choose one of {choices}")
        distributions = _typed(value, "distributions", dict, {})
        if not all(isinstance(version, str) for version in distributions.values()):
            raise InvalidEnvelopeError("distributions", "must map names to version strings")
        return cls(
            kind=CallKind(kind),
            function=_typed(value, "function", str, ""),
            python=_typed(value, "python", str, ""),
            imports=_module_names(value, "imports"),
            distributions=distributions,
            modules=_module_names(value, "modules"),
            options=_typed(value, "options", dict, {}),
            client=_typed(value, "client", str, ""),
        )


def _module_names(value: Mapping[str, Any], key: str) -> tuple[str, ...]:
    names = _typed(value, key, list, [])
    if len(names) > MAX_IMPORTS or not all(isinstance(name, str) for name in names):
        raise InvalidEnvelopeError(key, f"must be at most {MAX_IMPORTS} module names")
    return tuple(names)


_JSON_NAMES = {"str": "a string", "list": "a list", "dict": "an object"}


def _typed(value: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    found = value.get(key, default)
    if not isinstance(found, kind):
        expected = _JSON_NAMES[kind.__name__]
        raise InvalidEnvelopeError(key, f"must be {expected}, not {type(found).__name__}")
    return found
