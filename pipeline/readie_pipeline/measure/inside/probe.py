"""Imports one module in this fresh interpreter, or loads one thing, and reports what that took.

stdin: ``{"module": "pandas", "before": ["numpy"], "call": null}``; the answer goes to the file named
by the only argument. ``before`` are imported first and are not charged. With a ``call``, which is
``{"module": "joblib", "function": "load", "path": "/…", "options": {}}``, that is what is measured.
"""

import gc
import importlib
import json
import os
import sys
import time
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any


def main() -> None:
    request = json.load(sys.stdin)
    answer = measure(request["module"], request["before"], request["call"])
    Path(sys.argv[1]).write_text(json.dumps(answer), encoding="utf-8")
    # Whatever the module registered for the interpreter's end is not part of the measurement.
    os._exit(0)


def measure(module: str, before: "list[str]", call: "dict[str, Any] | None") -> dict[str, Any]:
    present = set(sys.modules)
    for name in before:
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001 - an import may raise anything, SystemExit too
            return {"error": f"{name}, imported first, failed: {describe(error)}"}
    gc.collect()
    anonymous = anonymous_bytes()
    started = time.perf_counter()
    try:
        loaded = importlib.import_module(module) if call is None else perform(call)
    except BaseException as error:  # noqa: BLE001
        return {"error": describe(error)}
    elapsed = time.perf_counter() - started
    gc.collect()
    size_bytes = max(0, anonymous_bytes() - anonymous)  # while what was loaded is there
    return {
        "import_s": elapsed,
        "size_bytes": size_bytes,
        "disk_bytes": disk_bytes(loaded) if call is None else file_bytes(call["path"]),
        "modules": {
            name: kind_of(name, one)
            for name, one in sorted(sys.modules.items())
            if name not in present and not is_standard(name)
        },
    }


def perform(call: "dict[str, Any]") -> Any:
    function = attrgetter(call["function"])(importlib.import_module(call["module"]))
    if not call["path"]:
        return function(**call["options"])
    if call["module"] == "pickle":  # the only one that takes no path
        with Path(call["path"]).open("rb") as file:
            return function(file)
    return function(call["path"], **call["options"])


def anonymous_bytes() -> int:
    """Memory that no file backs. A checkpoint has to store it; file-backed pages cost nothing."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        import resource  # macOS and others: the peak is the nearest thing they tell

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def is_standard(name: str) -> bool:
    top = name.partition(".")[0]
    # The build's own settings have a name that no list of the standard library holds.
    return top in sys.stdlib_module_names or top.startswith("_sysconfigdata_")


def kind_of(name: str, module: ModuleType | None) -> str:
    """``module``; ``namespace`` (a folder without code); ``odd`` (not importable by its name)."""
    spec = getattr(module, "__spec__", None)
    if spec is None or spec.name != name:
        return "odd"
    if spec.origin is None and spec.submodule_search_locations is not None:
        return "namespace"
    return "module" if spec.has_location else "odd"


def disk_bytes(module: ModuleType) -> int:
    folders = [Path(folder) for folder in getattr(module, "__path__", ())]
    if not folders:
        file = getattr(module, "__file__", None)
        return Path(file).stat().st_size if file else 0
    return sum(
        file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file()
    )


def file_bytes(path: str) -> int:
    if not path:
        return 0
    files = [Path(path), *Path(path).rglob("*")]
    return sum(file.stat().st_size for file in files if file.is_file())


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]


if __name__ == "__main__":
    main()
