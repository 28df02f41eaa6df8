"""Run by the interpreter of a root filesystem, as a program: what it is and what it has installed.

Prints one JSON object. It imports nothing of ours, since that interpreter need not have it.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import sys
from pathlib import Path
from typing import Any

# What runs inside every sandbox, and what users' modules may import there.
PACKAGES = ("readie_executor", "readie_wire", "readie")


def inventory() -> dict[str, Any]:
    """``executable`` and prefixes, site folders, our packages' folders, distributions' hashes."""
    folders = {name: _package_folders(name) for name in PACKAGES}
    return {
        "version": sys.version,
        "executable": _executable(),
        "prefixes": sorted({sys.prefix, sys.base_prefix}),
        "site_folders": [path for path in sys.path if _is_site_folder(path)],
        "libc": platform.libc_ver(),
        "packages": folders,
        "code": [
            [str(file), _hash(file)]
            for places in folders.values()
            for place in places
            for file in sorted(Path(place).rglob("*.py"))
        ],
        "distributions": sorted(
            [name.lower(), one.version, hashlib.sha256(_record(one)).hexdigest()]
            for one in importlib.metadata.distributions()
            # Ours may be installed in place: its code is hashed above, as it is.
            if (name := one.metadata["Name"]) and name.lower() != "readie"
        ),
    }


def _executable() -> str:
    """One name for it, however it was called now: a checkpoint keeps the name."""
    full_name = Path(sys.prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    return str(full_name) if full_name.exists() else sys.executable


def _package_folders(name: str) -> list[str]:
    spec = importlib.util.find_spec(name)
    return list(spec.submodule_search_locations or ()) if spec else []


def _is_site_folder(path: str) -> bool:
    return Path(path).name in ("site-packages", "dist-packages") and Path(path).is_dir()


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _record(distribution: importlib.metadata.Distribution) -> bytes:
    text = distribution.read_text("RECORD") or distribution.read_text("METADATA") or ""
    return text.encode()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(inventory()))
