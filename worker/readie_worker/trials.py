"""Remembers that a runsc passed its self-test here, so that not every start of a worker pays for one."""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from readie_worker.sandbox import selftest

FORMAT = 1
_NAME = "runsc-tested.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STATUS = Path("/proc/self/status")
# What a process may do differs between containers on one kernel.
_OF_STATUS = ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")


def circumstances(runsc: Path) -> Mapping[str, str]:
    """All that the verdict on a binary depends on; another value of any calls for another test."""
    status = dict(line.partition(":")[::2] for line in _STATUS.read_text().splitlines())
    return {
        "runsc": hashlib.sha256(runsc.read_bytes()).hexdigest(),
        "kernel": f"{platform.release()} {platform.version()}",
        # Of this boot alone: the folder may lie on a disk that another machine starts from.
        "boot": _BOOT_ID.read_text().strip(),
        "readie": _sources(),  # with the options that runsc is given
        **{name: status.get(name, "").strip() for name in _OF_STATUS},
    }


def passed_before(folder: Path, now: Mapping[str, str]) -> bool:
    """Whether a test passed under just these circumstances; a file that cannot be read says nothing."""
    try:
        noted = json.loads((folder / _NAME).read_bytes())
        return bool(noted == {"format": FORMAT, "passed": dict(now)})
    except (OSError, ValueError):
        return False


def note_pass(folder: Path, now: Mapping[str, str]) -> None:
    """For the next worker with this folder, which owns the file."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f"{_NAME}.{os.getpid()}"
    draft.write_text(json.dumps({"format": FORMAT, "passed": dict(now)}, indent=1))
    draft.replace(folder / _NAME)


def _sources() -> str:
    digest = hashlib.sha256()
    for file in sorted(Path(selftest.__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
