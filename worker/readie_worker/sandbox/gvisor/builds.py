"""Which `runsc` this is, and whether it is one that is known not to work."""

import hashlib
import mmap
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

VERSION_DEADLINE_S = 20.0

# Go's build information: this mark, pointer size, flags, then from offset 32 a length and the text.
_GO_MARK = b"\xff Go buildinf:"
_GO_TEXT_OFFSET = 32

OLDEST_RELEASE = 20240101  # before it, other flags and `--platform=systrap` that fails
# The last release whose sources know the runtime of Go 1.25 and older only. Built with a newer Go
# its offset of the goroutine id is wrong: a tenth to a quarter of all runs die with exit code 2,
# "running on goroutine … (task goroutine … is 0)".
LAST_RELEASE_FOR_OLD_GO = 20240729
FIRST_NEW_GO = (1, 26)


@dataclass(frozen=True, slots=True)
class RunscBuild:
    """One binary. ``go`` is the compiler, ``"go1.24.4"``, empty where the binary does not tell."""

    path: Path
    version: str
    go: str
    sha256: str

    @property
    def release(self) -> int:
        """The day of its sources as ``yyyymmdd``; 0 when the version does not name one."""
        found = re.search(r"(20\d{6})", self.version)
        return int(found[1]) if found else 0

    def refusal(self) -> str | None:
        """Why this build must not be used, or ``None`` when nothing is known against it."""
        remedy = "install one with infra/gvisor/install"
        if 0 < self.release < OLDEST_RELEASE:
            return f"runsc {self.version} is older than {OLDEST_RELEASE}; {remedy}"
        if self.release == LAST_RELEASE_FOR_OLD_GO and _go_number(self.go) >= FIRST_NEW_GO:
            return (
                f"runsc {self.version} built with {self.go} reads goroutine ids at the wrong "
                f"offset, so that runs die at random; {remedy}"
            )
        return None


class UnusableBinaryError(Exception):
    """The file is not a `runsc` that can be run here; the message says how it failed."""


def identify(path: Path) -> RunscBuild:
    """Ask the binary who it is. Raises `UnusableBinaryError`."""
    try:
        printed = subprocess.run(
            [path, "--version"],
            check=False,
            capture_output=True,
            text=True,
            timeout=VERSION_DEADLINE_S,
        )
        content = path.read_bytes()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnusableBinaryError(f"{path} cannot be run: {error}") from error
    found = re.search(r"^runsc version (\S+)", printed.stdout, re.MULTILINE)
    if printed.returncode != 0 or found is None:
        raise UnusableBinaryError(f"{path} does not name its version as runsc does")
    return RunscBuild(path, found[1], _go_version(path), hashlib.sha256(content).hexdigest())


def _go_version(path: Path) -> str:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(_GO_MARK)
        while at >= 0:
            length = content[at + _GO_TEXT_OFFSET]
            start = at + _GO_TEXT_OFFSET + 1
            text = content[start : start + length]
            if text.startswith(b"go1."):
                return text.decode("ascii", "replace")
            at = content.find(_GO_MARK, at + 1)
    return ""


def _go_number(version: str) -> tuple[int, int]:
    found = re.match(r"go(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)
