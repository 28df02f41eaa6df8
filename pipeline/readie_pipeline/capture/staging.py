"""A generation's folder appears whole or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from readie_pipeline.errors import OutputError

MANIFEST = "manifest.json"
CATALOGUE = "catalogue.json"
CHECKPOINTS = "checkpoints"
META = "meta.json"

_OWN_NAMES = frozenset({MANIFEST, CATALOGUE, CHECKPOINTS})


def check_output(out: Path) -> None:
    """Raise `OutputError` unless ``out`` may be replaced: absent, empty, or a generation."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise OutputError(f"{out} is no folder; give a folder with --out")
    if out.is_dir():
        others = sorted({entry.name for entry in out.iterdir()} - _OWN_NAMES)
        if others:
            raise OutputError(
                f"{out} holds {others[0]!r}, which no capture wrote; give --out a folder of its own"
            )


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A folder beside ``out`` that takes its place when the block ends without an error."""
    check_output(out)
    token = secrets.token_hex(4)
    draft = out.with_name(f".{out.name}.{token}.partial")
    try:
        (draft / CHECKPOINTS).mkdir(parents=True)
    except OSError as error:
        raise OutputError(f"cannot write beside {out}: {error.strerror}") from error
    try:
        yield draft
        _replace(out, draft, out.with_name(f".{out.name}.{token}.previous"))
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_file(path: Path, data: bytes) -> None:
    """Write and flush to disk: the rename that follows must not outlive the bytes."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _replace(out: Path, draft: Path, previous: Path) -> None:
    check_output(out)
    try:
        if out.exists():
            out.rename(previous)
        draft.rename(out)
    except OSError as error:
        if previous.exists() and not out.exists():
            previous.rename(out)
        raise OutputError(f"cannot put the generation at {out}: {error.strerror}") from error
    shutil.rmtree(previous, ignore_errors=True)
