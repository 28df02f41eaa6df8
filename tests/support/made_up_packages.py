"""Virtual environments with small made-up distributions, for tests that import for real."""

import textwrap
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Environment:
    """A virtual environment without anything in it, to which a test adds distributions."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> Self:
        venv.create(folder, symlinks=True)
        return cls(folder)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return next(self.folder.glob("lib/python3.*/site-packages"))

    def install(self, distribution: str, version: str, files: Mapping[str, str]) -> None:
        """Files are given by their path in site-packages, with their text."""
        for path, text in files.items():
            target = self.site_packages / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(textwrap.dedent(text))
        info = self.site_packages / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))
