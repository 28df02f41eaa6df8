"""Lists the distributions of this interpreter, and which of them provides each asked module.

stdin: ``{"modules": ["sklearn", "google.cloud.storage"]}``; the answer goes to the file named by
the only argument.
"""

import json
import platform
import re
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions, packages_distributions
from pathlib import Path, PurePosixPath
from typing import Any


def main() -> None:
    request = json.load(sys.stdin)
    answer = take_inventory(request["modules"])
    Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")


def take_inventory(modules: Iterable[str]) -> dict[str, Any]:
    versions: dict[str, str] = {}
    providers: dict[str, str] = {}
    # Sorted, so that of two distributions with the same file the same one is named each time;
    # of two copies of one distribution the first on the path is the one that is imported.
    for found in sorted(distributions(), key=name_of):
        name = name_of(found)
        if not name or name in versions:
            continue
        versions[name] = found.version or ""
        for file in found.files or ():
            module = module_of(PurePosixPath(file))
            if module:
                providers.setdefault(module, name)
    by_top_level = packages_distributions()
    return {
        "python": platform.python_version(),
        "distributions": versions,
        "providers": {module: provider_of(module, providers, by_top_level) for module in modules},
    }


def provider_of(
    module: str, providers: dict[str, str], by_top_level: "dict[str, list[str]] | Any"
) -> str:
    """The distribution with the module's file, else with its nearest parent's; "" when none."""
    name = module
    while name:
        if name in providers:
            return providers[name]
        name = name.rpartition(".")[0]
    declared = {canonical(found) for found in by_top_level.get(module.partition(".")[0], ())}
    return declared.pop() if len(declared) == 1 else ""


def module_of(file: PurePosixPath) -> str:
    """``google/auth/__init__.py`` → ``google.auth``; "" for what is no module."""
    if file.suffix not in (".py", ".so", ".pyd") or ".." in file.parts:
        return ""
    stem = file.name.partition(".")[0]
    parts = file.parts[:-1] if stem == "__init__" else (*file.parts[:-1], stem)
    return ".".join(parts) if all(part.isidentifier() for part in parts) else ""


def name_of(found: Distribution) -> str:
    return canonical(found.metadata["Name"] or "")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
