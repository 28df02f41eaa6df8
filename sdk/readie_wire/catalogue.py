"""``catalogue.json`` version 2: what each checkpoint of a flavor holds and what every import costs.

Keys: ``version, flavor, alpha, distributions, items, checkpoints``. Unknown keys are ignored, so
that a newer pipeline may add some; a wrong type is an error that names the place.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from sys import intern
from typing import Any

from readie_wire.streaming import JsonStream
from readie_wire.versions import CATALOGUE_VERSION

FLAVORS = ("cpu", "gpu")

_CHUNK = 1 << 20  # bytes decoded at a time: a large file's items have some 80 kB each

_ONE = ord("1")

# An id becomes a folder name and a part of Redis keys.
_CHECKPOINT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


class CatalogueError(ValueError):
    """The file is no catalogue of version 2; the message names the place and the problem."""


class ResourceType(StrEnum):
    """What an item is. All but packages carry a prefix in their name, such as ``model:gpt2``."""

    PACKAGE = "package"
    DATASET = "dataset"
    MODEL = "model"
    TOKENIZER = "tokenizer"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that can be loaded.

    ``load_time`` in seconds with the dependencies already loaded; ``size_mb`` is the memory it
    adds, in MB of 2^20 bytes; ``dependencies`` are names of other items; ``distribution`` is the
    canonical name of what provides a package, else empty.
    """

    load_time: float
    size_mb: float
    resource_type: ResourceType = ResourceType.PACKAGE
    dependencies: Sequence[str] = ()
    distribution: str = ""


@dataclass(frozen=True, slots=True)
class CatalogueCheckpoint:
    """One checkpoint: ``canonical`` is what it was told to import, ``items`` all that it holds."""

    id: str
    items: Sequence[str] = ()
    canonical: Sequence[str] = ()
    size_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Resolution:
    """Import names found in a catalogue.

    ``matched`` maps each known name to its item: the name itself, or its nearest dotted parent.
    ``items`` are those items with everything they depend on, sorted. ``unknown`` names are not
    priced.
    """

    matched: Mapping[str, str]
    items: Sequence[str]
    unknown: Sequence[str]


@dataclass(frozen=True)
class Catalogue:
    """A catalogue in memory. ``alpha`` is in seconds per MB."""

    flavor: str
    alpha: float
    items: Mapping[str, Item]
    checkpoints: Sequence[CatalogueCheckpoint]
    distributions: Mapping[str, str] = field(default_factory=dict)
    version: int = CATALOGUE_VERSION

    @cached_property
    def graph(self) -> "ItemGraph":
        return ItemGraph(self.items)

    def resolve(self, names: Iterable[str]) -> Resolution:
        """Find ``names`` (dotted modules or prefixed resources) and what they pull in."""
        matched: dict[str, str] = {}
        unknown: dict[str, None] = {}
        for name in names:
            item = self.graph.nearest(name)
            if item is None:
                unknown[name] = None
            else:
                matched[name] = item
        needed = self.graph.closure_of(matched.values())
        return Resolution(matched, tuple(sorted(self.graph.names_in(needed))), tuple(unknown))


class ItemGraph:
    """Who needs whom. Items are numbered; a set of items is an int with one bit for each.

    A package needs its nearest dotted parent even where no dependency says so: Python imports
    that first. Closures are computed when first asked for, or all by `close_all`, and kept.
    """

    def __init__(self, items: Mapping[str, Item]) -> None:
        self.names: Sequence[str] = tuple(items)
        self._items = items
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._needs: dict[int, int] = {}
        self._closures: dict[int, int] = {}

    def nearest(self, name: str) -> str | None:
        """``name`` when it is an item, else its nearest dotted parent that is one.

        Resources (``model:org/name-3.1``) are themselves or nothing.
        """
        while name not in self._numbers:
            name, dot, _ = name.rpartition(".")
            if not dot or ":" in name:
                return None
        return name

    def bits_of(self, names: Iterable[str]) -> int:
        """The set of exactly these items; names that are no items are left out."""
        # Thousands of names are no rarity: digits of a binary number are set faster than bits.
        digits = bytearray(b"0") * (len(self._numbers) + 1)
        for number in map(self._numbers.get, names):
            if number is not None:
                digits[~number] = _ONE
        return int(digits, 2)

    def closure_of(self, names: Iterable[str]) -> int:
        """The set of these items and everything they depend on."""
        bits = 0
        for name in names:
            number = self._numbers.get(name)
            if number is not None:
                bits |= self._closures.get(number) or self._close(number)
        return bits

    def close_all(self) -> None:
        """Compute every closure now, each item's behind those of what it needs."""
        finished = on_path = 0
        for root in range(len(self.names)):
            path = [root]
            while path:
                number = path[-1]
                on_path |= 1 << number
                waiting = self._direct(number) & ~finished & ~on_path
                if waiting:
                    path.append((waiting & -waiting).bit_length() - 1)
                    continue
                if number not in self._closures:
                    self._close(number)
                finished |= 1 << number
                path.pop()

    def names_in(self, bits: int) -> Iterator[str]:
        return (self.names[number] for number in numbers_in(bits))

    def leading(self, names: Sequence[str]) -> tuple[str, ...]:
        """The names that no other of them pulls in: what a checkpoint is about, for people."""
        pulled_in = 0
        for name in names:
            pulled_in |= self.closure_of([name]) & ~self.bits_of([name])
        return tuple(name for name in names if not self.bits_of([name]) & pulled_in)

    def _close(self, number: int) -> int:
        # Dependencies may form cycles, so only finished closures are taken over whole.
        reached = 1 << number
        open_bits = self._direct(number) & ~reached
        while open_bits:
            other = open_bits.bit_length() - 1
            finished = self._closures.get(other)
            if finished is None:
                reached |= 1 << other
                open_bits |= self._direct(other)
            else:
                reached |= finished
            open_bits &= ~reached
        self._closures[number] = reached
        return reached

    def _direct(self, number: int) -> int:
        known = self._needs.get(number)
        if known is not None:
            return known
        name = self.names[number]
        bits = self.bits_of(self._items[name].dependencies)
        if self._items[name].resource_type is ResourceType.PACKAGE and "." in name:
            parent = self.nearest(name.rpartition(".")[0])
            if parent is not None:
                bits |= 1 << self._numbers[parent]
        self._needs[number] = bits
        return bits


def numbers_in(bits: int) -> Iterator[int]:
    """The positions of the one-bits, ascending; skips empty bytes, for sparse sets of thousands."""
    for position, byte in enumerate(bits.to_bytes((bits.bit_length() + 7) // 8, "little")):
        if byte:
            for offset in _BITS_OF_BYTE[byte]:
                yield position * 8 + offset


_BITS_OF_BYTE = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]


def canonical_distribution(name: str) -> str:
    """``"Scikit_Learn"`` → ``"scikit-learn"``, as package indexes compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def load_catalogue(data: bytes | Iterable[bytes]) -> Catalogue:
    """Read a catalogue file: its bytes, or chunks of them. Raises `CatalogueError`.

    Files of hundreds of MB exist. Given chunks, no more than one item is held undecoded.
    """
    chunks = _slices(data) if isinstance(data, bytes) else data
    try:
        parts = _read_parts(JsonStream(chunks))
    except CatalogueError:
        raise
    except (ValueError, RecursionError) as error:
        raise CatalogueError(f"not JSON: {error}") from error
    version = parts.get("version")
    if type(version) is not int or version != CATALOGUE_VERSION:
        raise CatalogueError(f"version is {version!r}; this build reads {CATALOGUE_VERSION}")
    flavor = _text(parts.get("flavor"), "flavor")
    if flavor not in FLAVORS:
        raise CatalogueError(f"flavor is {flavor!r}; choose one of {', '.join(FLAVORS)}")
    alpha = _number(parts.get("alpha"), "alpha")
    if alpha == 0:
        raise CatalogueError("alpha must be greater than 0 seconds per MB")
    distributions = _object(parts.get("distributions"), "distributions")
    return Catalogue(
        flavor=flavor,
        alpha=alpha,
        distributions={
            name: _text(version, f"distributions.{name}") for name, version in distributions.items()
        },
        items=_object(parts.get("items"), "items"),
        checkpoints=_checkpoints(parts.get("checkpoints")),
    )


def _slices(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[start : start + _CHUNK] for start in range(0, len(view), _CHUNK))


def _read_parts(stream: JsonStream) -> dict[str, Any]:
    """The file's top-level values; items and checkpoints are checked and made as they come."""
    if not stream.is_object():
        raise CatalogueError("the file must hold one JSON object")
    parts: dict[str, Any] = {}
    for key in stream.members():
        if key == "items" and stream.is_object():
            parts[key] = {
                intern(name): _item(stream.value(), f"items.{name}") for name in stream.members()
            }
        elif key == "checkpoints" and stream.is_list():
            parts[key] = [
                _checkpoint(stream.value(), f"checkpoints[{index}]")
                for index, _ in enumerate(stream.elements())
            ]
        else:
            parts[key] = stream.value()
    stream.end()
    return parts


def dump_catalogue(catalogue: Catalogue) -> bytes:
    """The bytes of the file: the same catalogue gives the same bytes, one entry a line."""
    items = ",\n".join(
        f"  {_dump(name)}: {_dump(_item_json(catalogue.items[name]))}"
        for name in sorted(catalogue.items)
    )
    checkpoints = ",\n".join(f"  {_dump(_checkpoint_json(one))}" for one in catalogue.checkpoints)
    distributions = dict(sorted(catalogue.distributions.items()))
    return (
        f'{{\n"version": {catalogue.version},\n"flavor": {_dump(catalogue.flavor)},\n'
        f'"alpha": {_dump(catalogue.alpha)},\n"distributions": {_dump(distributions)},\n'
        f'"items": {{\n{items}\n}},\n"checkpoints": [\n{checkpoints}\n]\n}}\n'
    ).encode()


def _item(value: Any, place: str) -> Item:
    fields = _object(value, place)
    kind = fields.get("resource_type")
    if kind not in set(ResourceType):
        choices = ", ".join(ResourceType)
        raise CatalogueError(f"{place}.resource_type is {kind!r}; choose one of {choices}")
    return Item(
        load_time=_number(fields.get("load_time"), f"{place}.load_time"),
        size_mb=_number(fields.get("size_mb"), f"{place}.size_mb"),
        resource_type=ResourceType(kind),
        dependencies=_names(fields.get("dependencies", []), f"{place}.dependencies"),
        distribution=_text(fields.get("distribution", ""), f"{place}.distribution"),
    )


def _checkpoints(value: Any) -> Sequence[CatalogueCheckpoint]:
    if not isinstance(value, list):
        raise CatalogueError("checkpoints must be a list")
    seen: set[str] = set()
    for index, one in enumerate(value):
        if one.id in seen:
            raise CatalogueError(
                f"checkpoints[{index}].id is {one.id!r}, which an earlier entry has"
            )
        seen.add(one.id)
    return tuple(value)


def _checkpoint(value: Any, place: str) -> CatalogueCheckpoint:
    fields = _object(value, place)
    name = _text(fields.get("id"), f"{place}.id")
    if not _CHECKPOINT_ID.fullmatch(name):
        raise CatalogueError(f"{place}.id is {name!r}; use letters, digits, '_' and '-'")
    return CatalogueCheckpoint(
        id=name,
        items=_names(fields.get("items"), f"{place}.items"),
        canonical=_names(fields.get("canonical"), f"{place}.canonical"),
        size_mb=_number(fields.get("size_mb"), f"{place}.size_mb"),
    )


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CatalogueError(f"{place} must be an object")
    return value


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise CatalogueError(f"{place} must be a string")
    return value


def _number(value: Any, place: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise CatalogueError(f"{place} must be a finite number, 0 or more")
    return float(value)


def _names(value: Any, place: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise CatalogueError(f"{place} must be a list of names")
    # The same name stands in thousands of lists of a large catalogue: keep one string for each.
    return tuple(intern(name) for name in value)


def _item_json(item: Item) -> dict[str, Any]:
    value: dict[str, Any] = {
        "load_time": item.load_time,
        "size_mb": item.size_mb,
        "resource_type": str(item.resource_type),
        "distribution": item.distribution,
    }
    if item.dependencies:
        value["dependencies"] = sorted(item.dependencies)
    return value


def _checkpoint_json(checkpoint: CatalogueCheckpoint) -> dict[str, Any]:
    return {
        "id": checkpoint.id,
        "items": list(checkpoint.items),
        "canonical": list(checkpoint.canonical),
        "size_mb": checkpoint.size_mb,
    }


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
