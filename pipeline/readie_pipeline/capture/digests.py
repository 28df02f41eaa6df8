"""What runs in a sandbox as one hash: the program itself, and the packages that it can import."""

import hashlib
from importlib.metadata import distributions, version
from importlib.util import find_spec
from pathlib import Path

# The executor is never imported here: it is a program, found by name and started by the runtimes.
_PACKAGES = ("readie_executor", "readie_wire")


def executor_digest() -> str:
    """SHA-256 (hex) over the executor's sources and the version of cloudpickle, its one dependency."""
    digest = hashlib.sha256(version("cloudpickle").encode())
    for package in _PACKAGES:
        spec = find_spec(package)
        folders = (spec.submodule_search_locations if spec else None) or []
        for folder in folders:
            for file in sorted(Path(folder).rglob("*.py")):
                digest.update(f"\0{package}/{file.relative_to(folder)}\0".encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()


def packages_digest() -> str:
    """SHA-256 (hex) over the names and versions of what this interpreter has installed."""
    names = sorted(f"{one.metadata['Name']}=={one.version}" for one in distributions())
    return hashlib.sha256("\n".join(names).encode()).hexdigest()
