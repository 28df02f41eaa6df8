"""Lists this interpreter's distributions and packages, and which of them provides each asked module.

stdin: ``{"modules": ["sklearn", "google.cloud.storage"]}``; the answer goes to the file named by
the only argument.
"""

import json
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions, packages_distributions
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any


def main() -> None:
    request = json.load(sys.stdin)
    answer = take_inventory(request["modules"])
    Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")


def take_inventory(modules: Iterable[str]) -> dict[str, Any]:
    versions: dict[str, str] = {}
    providers: dict[str, str] = {}
    unlisted: dict[str, Distribution] = {}
    # Sorted, so that of two distributions with the same file the same one is named each time;
    # of two copies of one distribution the first on the path is the one that is imported.
    for found in sorted(distributions(), key=name_of):
        name = name_of(found)
        if not name or name in versions:
            continue
        versions[name] = found.version or ""
        listed = {module_of(PurePosixPath(file)) for file in found.files or ()} - {""}
        for module in listed:
            providers.setdefault(module, name)
        if not listed:
            unlisted[name] = found
    # What lists no modules has none, or comes from Debian, conda or an editable install. Those come
    # last: a distribution without any may have the name of another one's module.
    for name, found in unlisted.items():
        for module in modules_found(tops_of(name, found)):
            providers.setdefault(module, name)
    by_top_level = packages_distributions()
    return {
        "python": platform.python_version(),
        "distributions": versions,
        "packages": sorted(packages_in(providers)),
        "providers": {module: provider_of(module, providers, by_top_level) for module in modules},
        "existing": {module: nearest(module, providers) for module in modules},
    }


def tops_of(name: str, found: Distribution) -> "list[str]":
    """Names that a distribution without a list of its files may be imported by."""
    declared = (found.read_text("top_level.txt") or "").split()
    return declared or [name.replace("-", "_")]


def modules_found(tops: Iterable[str]) -> "Iterator[str]":
    """Of these top-level modules those that are there, with the modules in them."""
    for top in tops:
        if not top.isidentifier() or top in sys.modules:  # one of this program's own
            continue
        spec = find_spec(top)
        if spec is None or not spec.origin:
            continue
        yield top
        for folder in map(Path, spec.submodule_search_locations or ()):
            for file in folder.rglob("*"):
                module = module_of(PurePosixPath(top, file.relative_to(folder).as_posix()))
                if module:
                    yield module


def packages_in(modules: Iterable[str]) -> "set[str]":
    """The modules that no other of them contains: ``google.auth``, but not ``google.auth.jwt``."""
    known = set(modules)
    return {
        module
        for module in known
        if not any(parent in known for parent in parents(module)) and is_public(module)
    }


def is_public(module: str) -> bool:
    """Not a script or test folder that a distribution has put beside its packages."""
    return module.partition(".")[0] not in (
        "tests",
        "test",
        "docs",
        "examples",
        "setup",
        "conftest",
    )


def parents(module: str) -> "list[str]":
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def nearest(module: str, known: "dict[str, str]") -> str:
    """``module`` when a distribution has its file, else its nearest such parent, else ""."""
    while module and module not in known:
        module = module.rpartition(".")[0]
    return module


def provider_of(
    module: str, providers: dict[str, str], by_top_level: "dict[str, list[str]] | Any"
) -> str:
    """The distribution with the module's file, else with its nearest parent's; "" when none."""
    name = nearest(module, providers)
    if name:
        return providers[name]
    declared = {canonical(found) for found in by_top_level.get(module.partition(".")[0], ())}
    return declared.pop() if len(declared) == 1 else ""


def module_of(file: PurePosixPath) -> str:
    """``google/auth/__init__.py`` → ``google.auth``; "" for what is no module."""
    if file.suffix not in (".py", ".so", ".pyd") or ".." in file.parts:
        return ""
    stem = file.name.partition(".")[0]
    if file.parts[0] in ("bin", "Scripts"):
        return ""
    parts = file.parts[:-1] if stem == "__init__" else (*file.parts[:-1], stem)
    return ".".join(parts) if all(part.isidentifier() for part in parts) else ""


def name_of(found: Distribution) -> str:
    return canonical(found.metadata["Name"] or "")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
