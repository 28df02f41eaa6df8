"""The program in the sandbox loads almost nothing before the call."""

import json
import subprocess
import sys

# Modules that a fresh sandbox has when it says HELLO, beyond a bare interpreter's. It is a bound, not
# a count: a new one deserves a look at what it costs every cold start.
MAX_MODULES = 90
HEAVY = {
    "asyncio",
    "inspect_source",
    "ctypes",
    "logging",
    "pathlib",
    "tempfile",
    "typing_extensions",
}

LIST_LOADED = """
import sys
before = set(sys.modules)
import readie_executor.__main__
import json
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def loaded() -> set[str]:
    printed = subprocess.run(
        [sys.executable, "-I", "-c", LIST_LOADED], capture_output=True, check=True
    )
    return set(json.loads(printed.stdout))


def test_a_fresh_sandbox_has_loaded_almost_nothing() -> None:
    modules = loaded()
    assert len(modules) <= MAX_MODULES, sorted(modules)
    assert not modules & HEAVY


def test_a_fresh_sandbox_has_nothing_of_anybody_elses() -> None:
    tops = {name.partition(".")[0] for name in loaded()}
    assert tops - sys.stdlib_module_names == {"readie_executor", "readie_wire"}
