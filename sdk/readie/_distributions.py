"""Import names to distributions: ``sklearn`` is in ``scikit-learn``, ``google.cloud.storage`` in
``google-cloud-storage``. Installed metadata says so first; a table knows the famous rest.
"""

import functools
import importlib.metadata
import threading
from collections.abc import Iterable

from packaging.utils import canonicalize_name

from readie_wire.distributions import FAMOUS

_NAMESPACES = frozenset({"azure", "backports", "google", "google.cloud", "zope"})

_known: dict[str, tuple[str, ...]] = {}
_lock = threading.Lock()


def installed_versions(modules: Iterable[str]) -> dict[str, str]:
    """Distribution → version of every installed distribution that one of ``modules`` comes from."""
    owners: set[str] = set()
    for found in owning_distributions(modules).values():
        owners.update(found)
    return {name: _version(name) for name in sorted(owners)}


def owning_distributions(modules: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For each module the installed distributions that hold it; none for a bare namespace."""
    wanted = tuple(dict.fromkeys(modules))
    with _lock:
        if missing := [name for name in wanted if name not in _known]:
            _known.update(_search(missing))
        return {name: _known[name] for name in wanted}


def likely_distribution(module: str) -> str | None:
    """What to install for ``module``, installed here or not; None where only a guess is left."""
    if owners := owning_distributions([module])[module]:
        return owners[0]
    parts = module.split(".")
    if module in _NAMESPACES:
        return None
    if parts[:2] == ["google", "cloud"] or parts[0] == "azure":
        return "-".join(parts[:3]).replace("_", "-")
    if parts[0] in _NAMESPACES:
        return None
    return FAMOUS.get(parts[0], canonicalize_name(parts[0]))


@functools.cache
def _version(distribution: str) -> str:
    return importlib.metadata.version(distribution)


def _search(modules: list[str]) -> dict[str, tuple[str, ...]]:
    """One pass over the file lists of all distributions, for all modules at once."""
    found: dict[str, set[str]] = {name: set() for name in modules}
    levels = {name: _file_prefixes(name) for name in modules}
    depth_of = dict.fromkeys(modules, 0)  # a deeper match is nearer to the module itself
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        files = "\n" + (distribution.read_text("RECORD") or _listed_modules(distribution))
        for module, prefixes in levels.items():
            for depth, beginnings in prefixes:
                if depth < depth_of[module]:
                    break
                if any(beginning in files for beginning in beginnings):
                    if depth > depth_of[module]:
                        found[module].clear()
                        depth_of[module] = depth
                    found[module].add(canonicalize_name(name))
                    break
    return {name: tuple(sorted(owners)) for name, owners in found.items()}


def _file_prefixes(module: str) -> list[tuple[int, tuple[str, ...]]]:
    """Beginnings of lines in a RECORD that show its owner, the module itself before its parents."""
    parts = module.split(".")
    prefixes: list[tuple[int, tuple[str, ...]]] = []
    for depth in range(len(parts), 0, -1):
        path = "/".join(parts[:depth])
        prefixes.append((depth, (f"\n{path}/__init__.py", f"\n{path}.py", f"\n{path}.cpython-")))
    return prefixes


def _listed_modules(distribution: importlib.metadata.Distribution) -> str:
    """For what system packages leave instead of a RECORD."""
    tops = (distribution.read_text("top_level.txt") or "").split()
    return "\n".join(f"{top}/__init__.py" for top in tops)
