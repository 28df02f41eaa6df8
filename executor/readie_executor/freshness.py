"""Tells whether the installed packages are still those that a zygote has imported from."""

import os
import sys
from typing import Self


class InstalledPackages:
    """The distributions found on the import path at one moment.

    `unchanged` costs one stat for each folder of them: an installer that adds, removes or upgrades
    a distribution renames an entry of its folder, which changes the folder's modification time.
    """

    def __init__(self, folders: dict[str, tuple[int, frozenset[str]]]) -> None:
        self._folders = folders

    @classmethod
    def now(cls) -> Self:
        folders = {}
        for folder in sys.path:
            if (stamp := _stamp(folder)) is not None and (found := _distributions(folder)):
                folders[folder] = (stamp, found)
        return cls(folders)

    def unchanged(self) -> bool:
        for folder, (stamp, distributions) in self._folders.items():
            current = _stamp(folder)
            if current == stamp:
                continue
            if current is None or _distributions(folder) != distributions:
                return False
            self._folders[folder] = (current, distributions)  # something else was added there
        return True


def _stamp(folder: str) -> int | None:
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 - pathlib stays unloaded
    except OSError:
        return None


def _distributions(folder: str) -> frozenset[str]:
    """Names of metadata folders, which hold the version, with the time each was written."""
    try:
        with os.scandir(folder) as entries:
            return frozenset(
                f"{entry.name} {entry.stat().st_mtime_ns}"
                for entry in entries
                if entry.name.endswith((".dist-info", ".egg-info"))
            )
    except OSError:
        return frozenset()
