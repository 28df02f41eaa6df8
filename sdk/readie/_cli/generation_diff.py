"""What one generation has that another has not, from what a gateway tells of both."""

from collections.abc import Mapping, Sequence
from typing import Any


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """From ``GET /v1/generations/{id}`` of each; ``packages`` and ``bytes`` None where one is unknown.

    Checkpoints are the same where they import the same: an id means nothing in another generation.
    ``bytes``: of files on a worker's disk, and how many of them the old one does not have.
    """
    return {
        "old": old["generation"],
        "new": new["generation"],
        "packages": _packages(old["distributions"], new["distributions"]),
        "checkpoints": _checkpoints(old["checkpoints"], new["checkpoints"]),
        "bytes": _bytes(old["files"], new["files"]),
    }


def _packages(
    old: Mapping[str, str] | None, new: Mapping[str, str] | None
) -> dict[str, Any] | None:
    if old is None or new is None:
        return None
    return {
        "added": {name: new[name] for name in sorted(new.keys() - old.keys())},
        "removed": {name: old[name] for name in sorted(old.keys() - new.keys())},
        "changed": {
            name: [old[name], new[name]]
            for name in sorted(old.keys() & new.keys())
            if old[name] != new[name]
        },
    }


def _checkpoints(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    before, after = _by_imports(old), _by_imports(new)
    return {
        "added": [_told(after[key]) for key in after if key not in before],
        "removed": [_told(before[key]) for key in before if key not in after],
        "changed": [
            {**_told(after[key]), "was": _told(before[key])}
            for key in after
            if key in before and _differs(before[key], after[key])
        ],
    }


def _by_imports(checkpoints: Sequence[Mapping[str, Any]]) -> dict[Any, Mapping[str, Any]]:
    """Those whose imports nobody tells are known by their id alone."""
    return {
        one["id"] if one["imports"] is None else frozenset(one["imports"]): one
        for one in checkpoints
    }


def _told(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    return {key: checkpoint[key] for key in ("id", "imports", "size_mb", "size")}


def _differs(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Their images do; or their memory, where they have none."""
    return any(old[key] != new[key] for key in ("digest", "size_mb"))


def _bytes(
    old: Sequence[Mapping[str, Any]] | None, new: Sequence[Mapping[str, Any]] | None
) -> dict[str, int] | None:
    if old is None or new is None:
        return None
    known = {file["sha256"] for file in old}
    fresh = {file["sha256"]: file["size"] for file in new if file["sha256"] not in known}
    return {"total": sum(file["size"] for file in new), "new": sum(fresh.values())}
