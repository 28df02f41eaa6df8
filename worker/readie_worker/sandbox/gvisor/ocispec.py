"""The one place that says what a sandbox looks like: its OCI spec, for capture, restore and cold.

A checkpoint restores only into a sandbox of the shape it was captured in, so every start goes
through `build_spec` with the same `Shape`. What may differ between two sandboxes of one shape (run
directory, network namespace, environment) is an argument of its own. Limits on memory and CPU are
not in the spec at all: the worker's own cgroup around the sandbox holds them. This module does no
I/O.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from readie_worker.sandbox.api import Network

RUN_DIR = "/run/readie"  # where every sandbox sees its own run directory, read-only
HOME = "/home/readie"
HOSTNAME = "readie"  # the same in every clone: a checkpoint keeps it anyway

_CAPABILITY_SETS = ("bounding", "effective", "inheritable", "permitted", "ambient")
_READ_ONLY = ("rbind", "ro", "nosuid", "nodev")


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder or file of the host that the sandbox sees read-only at ``target``."""

    source: Path
    target: str


@dataclass(frozen=True, slots=True)
class Shape:
    """All that a checkpoint depends on. Sizes in bytes; ``root`` is the folder under the binds."""

    root: Path
    binds: tuple[Bind, ...]
    command: tuple[str, ...]
    uid: int
    gid: int
    open_files: int
    shm_bytes: int
    tmp_bytes: int


def build_spec(
    shape: Shape,
    *,
    run_dir: Path,
    environment: Mapping[str, str],
    network: Network,
    netns: Path | None = None,
) -> dict[str, Any]:
    """The content of a bundle's ``config.json``. ``netns`` only with the network ``sandbox``."""
    return {
        "ociVersion": "1.0.2",
        "hostname": HOSTNAME,
        "root": {"path": str(shape.root), "readonly": False},
        "process": {
            "terminal": False,
            "user": {"uid": shape.uid, "gid": shape.gid},
            "args": list(shape.command),
            "env": [f"{name}={value}" for name, value in sorted(environment.items())],
            "cwd": HOME,
            "capabilities": {name: [] for name in _CAPABILITY_SETS},
            "noNewPrivileges": True,
            "rlimits": [
                _rlimit("RLIMIT_NOFILE", shape.open_files),
                _rlimit("RLIMIT_CORE", 0),  # a crashed call must not write gigabytes
            ],
        },
        "mounts": _mounts(shape, run_dir),
        "linux": {"namespaces": _namespaces(network, netns)},
    }


def fingerprint(shape: Shape) -> str:
    """A hash of the shape: program, mounts, user and limits, whatever the host calls the root."""
    described = {
        "command": shape.command,
        "mounts": [
            [mount["destination"], mount["type"], mount.get("options", [])]
            for mount in _mounts(shape, Path(RUN_DIR))
        ],
        "user": [shape.uid, shape.gid],
        "open_files": shape.open_files,
        "namespaces": ["pid", "ipc", "uts", "mount", "network"],
    }
    canonical = json.dumps(described, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _mounts(shape: Shape, run_dir: Path) -> list[dict[str, Any]]:
    private = ["nosuid", "nodev", "mode=1777"]
    return [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
        _tmpfs("/dev/shm", [*private, f"size={shape.shm_bytes}"]),  # noqa: S108 - in the sandbox
        _tmpfs("/tmp", [*private, f"size={shape.tmp_bytes}"]),  # noqa: S108 - in the sandbox
        # A folder that holds another's target must be mounted first.
        *(_bind(bind) for bind in sorted(shape.binds, key=_by_depth)),
        _bind(Bind(run_dir, RUN_DIR)),
    ]


def _by_depth(bind: Bind) -> tuple[int, str]:
    return len(PurePosixPath(bind.target).parts), bind.target


def _bind(bind: Bind) -> dict[str, Any]:
    return {
        "destination": bind.target,
        "type": "bind",
        "source": str(bind.source),
        "options": list(_READ_ONLY),
    }


def _tmpfs(target: str, options: list[str]) -> dict[str, Any]:
    return {"destination": target, "type": "tmpfs", "source": "tmpfs", "options": options}


def _rlimit(name: str, value: int) -> dict[str, Any]:
    return {"type": name, "soft": value, "hard": value}


def _namespaces(network: Network, netns: Path | None) -> list[dict[str, str]]:
    spaces = [{"type": name} for name in ("pid", "ipc", "uts", "mount")]
    if network == "host":
        return spaces
    own = {"type": "network"} if netns is None else {"type": "network", "path": str(netns)}
    return [*spaces, own]
