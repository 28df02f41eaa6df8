"""Collects the caller's own modules that a call needs, as source files."""

import functools
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from readie._errors import SerializationError
from readie._locality import Origin, Place, locate
from readie_wire.extracting import Extraction, Sighting, extract_imports, is_standard_library

MAX_MODULES = 2_000
MAX_BYTES = 16 << 20  # of source in one call: more is a data file or a folder taken by mistake


@dataclass(slots=True)
class Shipment:
    """``sources`` as `readie_wire.shipping` takes them; ``imports`` are what they need in turn.

    ``seen`` tells where each name that a source imports was found first.
    """

    sources: dict[str, tuple[str, bool, bytes | None]] = field(default_factory=dict)
    imports: dict[str, Sighting] = field(default_factory=dict)
    seen: dict[str, Sighting] = field(default_factory=dict)
    size: int = 0

    @property
    def names(self) -> list[str]:
        return sorted({name.partition(".")[0] for name in self.sources})


def collect(names: Iterable[str]) -> Shipment:
    """The sources of ``names`` and of every local module that they import, parents included.

    Raises `SerializationError` for a local module that has no source, or when it becomes too much.
    """
    shipment = Shipment()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in shipment.sources:
            continue
        place = locate(name)
        if place.origin is not Origin.LOCAL:
            if place.origin in {Origin.INSTALLED, Origin.MISSING}:
                shipment.imports[name] = shipment.seen[name]
            continue
        _add(shipment, name, place)
        waiting += _parents(name)
        if place.file is not None:
            waiting += _needed_by(name, place.file, place.is_package, shipment)
    return shipment


def _add(shipment: Shipment, name: str, place: Place) -> None:
    if place.file is None:
        shipment.sources[name] = ("", True, None)
        return
    if place.file.suffix not in {".py", ".pyw"}:
        raise SerializationError(
            f"the local module {name} ({place.file}) is no Python source, so it cannot travel "
            "with the call: install it on the workers",
            [name],
        )
    source, _ = _read(place.file)
    shipment.sources[name] = (str(place.file), place.is_package, source)
    shipment.size += len(source)
    if len(shipment.sources) > MAX_MODULES or shipment.size > MAX_BYTES:
        raise SerializationError(
            f"the function needs more than {MAX_MODULES} local modules or {MAX_BYTES} bytes of "
            f"them ({name} is one): install the package on the workers",
            [name],
        )


def _needed_by(name: str, file: Path, is_package: bool, shipment: Shipment) -> list[str]:
    _, found = _read(file)
    package = name if is_package else name.rpartition(".")[0]
    needed = list(found.imports)
    for sighting in found.seen:
        shipment.seen.setdefault(sighting.name, replace(sighting, file=str(file)))
    for candidate in found.candidates:
        # `from x import y`: only where x is local too is it worth asking whether y is a module.
        origin = locate(candidate.rpartition(".")[0]).origin
        if origin is Origin.LOCAL and locate(candidate).origin is Origin.LOCAL:
            needed.append(candidate)
        elif origin is not Origin.LOCAL:
            shipment.imports[candidate] = shipment.seen[candidate]
    for relative in found.relative:
        try:
            absolute = importlib.util.resolve_name(relative, package or None)
        except ImportError:
            continue  # a relative import outside a package fails there as it does here
        if locate(absolute).origin is Origin.LOCAL:
            needed.append(absolute)
    return [other for other in needed if not is_standard_library(other)]


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _read(file: Path) -> tuple[bytes, Extraction]:
    try:
        status = file.stat()
        return _read_version(file, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise SerializationError(f"the local module at {file} cannot be read: {error}") from error


@functools.lru_cache(maxsize=MAX_MODULES)
def _read_version(file: Path, _mtime_ns: int, _size: int) -> tuple[bytes, Extraction]:
    source = file.read_bytes()
    try:
        text = importlib.util.decode_source(source)
    except (SyntaxError, UnicodeDecodeError):
        text = source.decode("utf-8", "replace")  # it fails there with Python's own words
    return source, extract_imports(text)
