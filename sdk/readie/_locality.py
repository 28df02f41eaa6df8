"""Where a module comes from: what a worker has too, and what must travel with the call."""

import functools
import importlib.machinery
import importlib.util
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from types import ModuleType

# Every sandbox has these, wherever they lie here.
PROVIDED = frozenset({"cloudpickle", "readie", "readie_executor", "readie_wire"})
_INSTALL_FOLDERS = frozenset({"site-packages", "dist-packages"})


class Origin(Enum):
    """``STANDARD``: in every sandbox. ``MAIN``: the script or the notebook. ``LOCAL``: a file outside every install folder."""

    STANDARD = auto()
    INSTALLED = auto()
    LOCAL = auto()
    MAIN = auto()
    MISSING = auto()


@dataclass(frozen=True, slots=True)
class Place:
    """A module's origin, with its file (None for a namespace package) where it is LOCAL."""

    origin: Origin
    file: Path | None = None
    is_package: bool = False


def locate(name: str) -> Place:
    """Where the module of this dotted name lies. Imports nothing."""
    top = name.partition(".")[0]
    if top in {"__main__", "__mp_main__"}:
        return Place(Origin.MAIN)
    if top in sys.stdlib_module_names or top in PROVIDED:
        return Place(Origin.STANDARD)
    module = sys.modules.get(name)
    if module is not None:
        return _of_loaded(module)
    spec = _find(name)
    if spec is None:
        return Place(Origin.MISSING)
    return _judge(spec.origin if spec.has_location else None, spec.submodule_search_locations)


def _of_loaded(module: ModuleType) -> Place:
    search = getattr(module, "__path__", None)
    return _judge(getattr(module, "__file__", None), None if search is None else list(search))


def _find(name: str) -> importlib.machinery.ModuleSpec | None:
    """As the import system would, but without importing the parents of a dotted name."""
    search: Sequence[str] | None = None
    spec = None
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        parent = sys.modules.get(".".join(parts[:count]))
        if parent is not None and count < len(parts):
            search = list(getattr(parent, "__path__", ()))
            continue
        try:
            spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:count]), search)
        except (ImportError, ValueError, OSError):
            return None
        if spec is None:
            return None
        search = list(spec.submodule_search_locations or ())
    return spec


def _judge(file: str | None, search: Sequence[str] | None) -> Place:
    is_package = search is not None
    if file is None:
        # Built in, or a namespace package: the latter is local where a part of it is.
        if any(not _is_installed(folder) for folder in search or ()):
            return Place(Origin.LOCAL, None, is_package)
        return Place(Origin.INSTALLED)
    if _is_installed(file):
        return Place(Origin.INSTALLED)
    return Place(Origin.LOCAL, Path(file), is_package)


@functools.lru_cache(maxsize=4096)
def _is_installed(path: str) -> bool:
    place = Path(path)
    if _INSTALL_FOLDERS.intersection(place.parts):
        return True
    return any(place.is_relative_to(folder) for folder in _install_folders())


@functools.cache
def _install_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")})
