"""A generation's folder appears whole or not at all, and what a run has captured outlives it.

| in ``.{name}.partial``, beside the generation | what                                              |
|-----------------------------------------------|---------------------------------------------------|
| ``lock``                                      | held by the run that works here                   |
| ``generation/``                               | what is being made                                |
| ``previous/``                                 | what it replaces, between two renames             |

The ``meta.json`` of a checkpoint is written last: one without it is half a checkpoint.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from readie_pipeline.errors import CaptureError, OutputError
from readie_wire.manifest import CheckpointMeta, ManifestError, dump_meta, load_meta

MANIFEST = "manifest.json"
CATALOGUE = "catalogue.json"
CHECKPOINTS = "checkpoints"
META = "meta.json"

_OWN_NAMES = frozenset({MANIFEST, CATALOGUE, CHECKPOINTS})
_LOCK_TRIES = 10  # each lost one means that another run ended and removed the folder just then


class Stage:
    """Where one generation is made. ``folder`` is the staging folder, `generation` what it becomes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generation = folder / "generation"

    def checkpoint(self, checkpoint_id: str) -> Path:
        return self.generation / CHECKPOINTS / checkpoint_id

    def found(self) -> list[str]:
        """Ids of the checkpoints that are here, whole or half."""
        return sorted(path.name for path in (self.generation / CHECKPOINTS).iterdir())

    def kept(self) -> list[str]:
        """Ids of those that are whole."""
        return [name for name in self.found() if (self.checkpoint(name) / META).is_file()]

    def keep(self, meta: CheckpointMeta) -> None:
        """Its images are complete: from now on it counts."""
        write_file(self.checkpoint(meta.id) / META, dump_meta(meta))

    def read(self, checkpoint_id: str) -> CheckpointMeta:
        """Raises `CaptureError`: there is half a checkpoint."""
        try:
            return load_meta((self.checkpoint(checkpoint_id) / META).read_bytes())
        except FileNotFoundError as error:
            raise CaptureError("its capture was not completed") from error
        except (OSError, ManifestError) as error:
            raise CaptureError(f"its record cannot be read: {error}") from error

    def drop(self, checkpoint_id: str) -> None:
        shutil.rmtree(self.checkpoint(checkpoint_id))


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
def staged(out: Path) -> Iterator[Stage]:
    """A stage beside ``out`` whose generation takes its place when the block ends without an error.

    What an earlier run that was killed or failed has left there is still in it. Raises
    `OutputError`: it cannot be written, or another run works on it.
    """
    check_output(out)
    stage = Stage(out.with_name(f".{out.name}.partial"))
    lock = _lock(stage.folder, out)
    try:
        _undo_half_a_swap(out, stage)
        _make_folder(stage.generation / CHECKPOINTS)
        try:
            yield stage
        except BaseException:
            if not stage.kept():
                shutil.rmtree(stage.folder, ignore_errors=True)
            raise
        _replace(out, stage)
        shutil.rmtree(stage.folder, ignore_errors=True)
    finally:
        os.close(lock)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make {folder}: {error.strerror}") from error


def write_file(path: Path, data: bytes) -> None:
    """The file appears whole and flushed: a rename that follows must not outlive the bytes.

    Raises `OutputError`.
    """
    draft = path.with_name(f".{path.name}.part")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def _lock(folder: Path, out: Path) -> int:
    """The descriptor that holds the lock. Raises `OutputError`."""
    for _ in range(_LOCK_TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise OutputError(f"cannot write beside {out}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The run that held it may have removed it before it let go.
            if os.path.samestat(os.fstat(lock), (folder / "lock").stat()):
                return lock
        except FileNotFoundError:
            pass
        except BlockingIOError as error:
            os.close(lock)
            raise OutputError(
                f"another capture is making {out}; wait for it, or give another --out"
            ) from error
        os.close(lock)
    raise OutputError(f"other captures come and go at {out}; give another --out")


def _undo_half_a_swap(out: Path, stage: Stage) -> None:
    """The earlier run was killed between its two renames."""
    previous = stage.folder / "previous"
    if previous.exists() and not out.exists():
        previous.rename(out)
    shutil.rmtree(previous, ignore_errors=True)


def _replace(out: Path, stage: Stage) -> None:
    check_output(out)
    previous = stage.folder / "previous"
    try:
        if out.exists():
            out.rename(previous)
        stage.generation.rename(out)
    except OSError as error:
        if previous.exists() and not out.exists():
            previous.rename(out)
        raise OutputError(f"cannot put the generation at {out}: {error.strerror}") from error
