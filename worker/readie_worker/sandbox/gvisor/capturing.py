"""Saves a process that has imported a set of packages, and times how it comes back."""

import asyncio
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from readie_wire.manifest import MappedFile
from readie_worker.sandbox.api import Limits
from readie_worker.sandbox.errors import CheckpointRefusedError, StartError
from readie_worker.sandbox.gvisor.container import CreatedContainer
from readie_worker.sandbox.gvisor.files import IMAGE_FILES, FileRecords
from readie_worker.sandbox.gvisor.launcher import Launcher, capturing_environment

READY = b"READIE-CAPTURE-READY "
REFUSED = b"READIE-CAPTURE-REFUSED "
REPORT_BYTES = 16 << 20  # the longest line a capture may say; it is a few kB
_READ_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint's image on disk. ``report`` is what the executor said about its imports."""

    report: Mapping[str, Any]
    image_files: Sequence[MappedFile]
    mapped_files: Sequence[MappedFile]

    @property
    def bytes_on_disk(self) -> int:
        return sum(file.size for file in self.image_files)


async def save(
    launcher: Launcher,
    records: FileRecords,
    imports: Sequence[str],
    folder: Path,
    limits: Limits,
    deadline_s: float,
) -> Saved:
    """Import in a sandbox, save it to ``folder``, end it.

    Raises `CheckpointRefusedError` when the process must not be saved, `StartError` when the
    sandbox fails; no image is left then.
    """
    created = await launcher.create("none", capturing_environment(",".join(imports)))
    try:
        created.parts.group.apply(limits)
        await launcher.start_alone(created)
        async with asyncio.timeout(deadline_s):
            report = await _await_report(created)
        await launcher.checkpoint(created, folder, deadline_s)
        mapped = await asyncio.to_thread(records.record_mapped, report.pop("mapped_files", ()))
        image = await asyncio.to_thread(records.record_image, folder)
        return Saved(report, image, mapped)
    except TimeoutError as error:
        _remove_image(folder)
        raise CheckpointRefusedError(f"importing took more than {deadline_s:g} s") from error
    except BaseException:
        _remove_image(folder)
        raise
    finally:
        await created.remove()


async def time_restore(
    launcher: Launcher, folder: Path, limits: Limits, deadline_s: float
) -> float:
    """Seconds from the order until the restored process, which exits at once, is gone.

    Raises `StartError`.
    """
    created = await launcher.create("none")
    try:
        created.parts.group.apply(limits)
        created.parts.rundir.write_ticket(created.parts.container.id, measure=True)
        begun = time.perf_counter()
        async with asyncio.timeout(deadline_s):
            await launcher.restore_alone(created, folder)
            ended = await asyncio.shield(created.exit)
        seconds = time.perf_counter() - begun
        if ended.exit_code != 0:
            raise StartError(f"the restored process ended with {ended}")
        return seconds
    except TimeoutError as error:
        raise StartError(f"the restored process did not end in {deadline_s:g} s") from error
    finally:
        await created.remove()


async def _await_report(created: CreatedContainer) -> dict[str, Any]:
    """The line in which the executor says that it may, or must not, be saved."""
    line = await _marked_line(created)
    if line.startswith(REFUSED):
        refusal = json.loads(line[len(REFUSED) :])
        raise CheckpointRefusedError(str(refusal["reason"]))
    report: dict[str, Any] = json.loads(line[len(READY) :])
    return report


async def _marked_line(created: CreatedContainer) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    stdout = created.parts.pipes.stdout
    said = b""
    loop.add_reader(stdout, readable.set)
    try:
        while len(said) < REPORT_BYTES:
            await readable.wait()
            readable.clear()
            try:
                data = os.read(stdout, _READ_BYTES)
            except BlockingIOError:
                continue
            if not data:
                ended = await asyncio.shield(created.exit)
                raise StartError(f"the capture {ended}; it said {_tail(said)}")
            said += data
            for line in said.splitlines(keepends=True):
                if line.endswith(b"\n") and line.startswith((READY, REFUSED)):
                    return line
    finally:
        loop.remove_reader(stdout)
    raise StartError(f"the capture said more than {REPORT_BYTES >> 20} MiB and no report")


def _tail(said: bytes) -> str:
    return repr(said[-300:].decode(errors="replace")) if said else "nothing"


def _remove_image(folder: Path) -> None:
    for name in IMAGE_FILES:
        (folder / name).unlink(missing_ok=True)
