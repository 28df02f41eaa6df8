"""Follows a bucket: fetches what its pointer names, proves it, and lets it be served."""

import asyncio
import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from readie_infra.bucket import Bucket, BucketError, FoundPointer, NotPublishedError, fetch
from readie_infra.objects import ObjectError
from readie_wire.catalogue import Catalogue, CatalogueError, load_catalogue
from readie_wire.manifest import ManifestError, load_manifest
from readie_wire.publication import (
    ANY_ROOTFS,
    CATALOGUE_NAME,
    MANIFEST_NAME,
    PackingList,
    PublishedFile,
    Target,
)
from readie_worker.errors import GenerationError
from readie_worker.generations import Machine, misfit
from readie_worker.local_generations import LocalGenerations, is_right

RESERVE_BYTES = 512 << 20  # of the disk that are left to everybody else
LONGEST_PAUSE_S = 300.0  # between tries that fail

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Following:
    """What is followed. ``rootfs`` is the digest of what this worker's sandboxes run on.

    ``poll`` in seconds; ``disk_budget`` in bytes, None for all that the disk can spare.
    """

    bucket: Bucket
    folder: Path
    rootfs: str = ANY_ROOTFS
    poll: float = 10.0
    disk_budget: int | None = None


class BucketSync:
    """Keeps a folder in step with a bucket; `Holdings` serve what `root` leads to.

    A first generation is served while its checkpoints arrive, the most valuable first. A later one
    is served when all of it is there, so that no call finds less than before. ``error`` says why
    the bucket's current generation is not served, ``notes`` what of it is left out.
    """

    def __init__(self, following: Following, machine: Machine) -> None:
        self._following = following
        self._machine = machine
        self._local = LocalGenerations(following.folder / machine.flavor / following.rootfs)
        self.root = self._local.current
        self.error = ""
        self._left_out: Mapping[str, str] = {}
        self._progress = ""
        self._synced: FoundPointer | None = None
        self._put_off = _PutOff(following.poll)
        self._proven: set[str] = set()  # generations whose files were hashed by this process
        self._stopping = threading.Event()

    @property
    def notes(self) -> Sequence[str]:
        left_out = [f"{name} is not synced: {reason}" for name, reason in self._left_out.items()]
        error = self.error and f"the bucket is not followed: {self.error}"
        return [*left_out, *filter(None, [self._progress, error])]

    async def open(self) -> None:
        """Check what an earlier process left on the disk. Call it before anything is served."""
        await asyncio.to_thread(self._check_disk)

    async def run(self, in_use: Callable[[], Collection[str]]) -> None:
        """Follow for ever. ``in_use`` tells which generations' files are needed here."""
        try:
            while True:
                self._local.hold(in_use())
                await self._uncancelled()
                await asyncio.sleep(self._following.poll)
        finally:
            self._local.close()

    async def _uncancelled(self) -> None:
        """One step in a thread; a cancellation ends the step first, then the caller."""
        step = asyncio.create_task(asyncio.to_thread(self._step))
        try:
            await asyncio.shield(step)
        except asyncio.CancelledError:
            self._stopping.set()
            with contextlib.suppress(_StoppedError):
                await step
            raise

    def _step(self) -> None:
        if not self._local.lead():  # another worker of this machine does it for all
            return
        try:
            found = self._look()
            if found is None:
                self.error = ""
            elif not self._put_off.applies_to(found):
                self._put_off.next_time(found)
                self._sync(found)
        except (BucketError, ObjectError, GenerationError, OSError) as error:
            if str(error) != self.error:
                log.warning("bucket not followed", reason=str(error), kept=self._local.exposed)
            self.error = str(error)
        finally:
            self._progress = ""

    def _look(self) -> FoundPointer | None:
        """The pointer, when it is not the one that has been dealt with."""
        following, flavor = self._following, self._machine.flavor
        if self._synced is None:
            return following.bucket.current(flavor, following.rootfs)
        try:
            return following.bucket.changed(flavor, following.rootfs, self._synced.etag)
        except NotPublishedError:
            self._synced = None
            raise

    def _sync(self, found: FoundPointer) -> None:
        """Bring a generation here, whole or as much of it as there is room for."""
        self._synced = None
        began, target = time.monotonic(), found.pointer.target
        listed = self._following.bucket.packing_list(
            self._machine.flavor, self._following.rootfs, target
        )
        place = self._local.begin(listed)
        known = self._local.known_files()
        if listed.generation not in self._proven:
            self._local.drop_what_is_damaged(listed.generation)
            self._proven.add(listed.generation)
        for file in listed.files:
            if file.checkpoint is None:
                self._bring(listed, file, known)
        order = self._by_value(place, listed)
        if self._local.exposed is None:
            self._local.expose(listed.generation)
        kept = {listed.generation, *_previous(found)}
        left_out: dict[str, str] = {}
        for checkpoint in order:
            if not self._local.has(listed, checkpoint):
                self._bring_checkpoint(listed, checkpoint, known, kept, left_out)
            self._left_out = dict(left_out)
        if self._local.exposed != listed.generation:
            self._local.expose(listed.generation)
        self._left_out, self.error, self._synced = left_out, "", found
        log.info(
            "generation synced",
            generation=listed.generation,
            seconds=round(time.monotonic() - began, 3),
            left_out=len(left_out),
        )
        for generation in self._local.removable(kept):
            self._local.remove(generation)

    def _by_value(self, place: Path, listed: PackingList) -> Sequence[str]:
        """The checkpoints, what saves most seconds first. Raises `GenerationError`."""
        try:
            manifest = load_manifest((place / MANIFEST_NAME).read_bytes())
            catalogue = load_catalogue((place / CATALOGUE_NAME).read_bytes())
        except (ManifestError, CatalogueError) as error:
            raise GenerationError(f"generation {listed.generation}: {error}") from error
        if (manifest.generation, manifest.flavor) != (listed.generation, listed.flavor):
            raise GenerationError(
                f"generation {listed.generation} holds the manifest of {manifest.generation}"
            )
        if reason := misfit(manifest, self._machine):
            raise GenerationError(
                f"nothing of generation {listed.generation} can be used here: {reason}"
            )
        saved = _seconds_saved(catalogue)
        present = {file.checkpoint for file in listed.files if file.checkpoint}
        return sorted(present, key=lambda name: (-saved.get(name, 0.0), name))

    def _bring_checkpoint(
        self,
        listed: PackingList,
        checkpoint: str,
        known: Mapping[str, Path],
        kept: Collection[str],
        left_out: dict[str, str],
    ) -> None:
        files = [file for file in listed.files if file.checkpoint == checkpoint]
        lacking = [file for file in files if not self._local.target(listed, file).exists()]
        new = sum(file.size for file in lacking if file.sha256 not in known)
        if reason := self._no_room(new, kept):
            left_out[checkpoint] = reason
            return
        self._progress = f"{checkpoint} of {listed.generation} is arriving"
        for file in files:
            self._bring(listed, file, known)
        self._local.admit(listed, checkpoint)

    def _bring(self, listed: PackingList, file: PublishedFile, known: Mapping[str, Path]) -> None:
        """A file to its target: left there by an earlier try, from another generation, or fetched."""
        target = self._local.target(listed, file)
        if is_right(target, file):
            return
        target.unlink(missing_ok=True)
        source = known.get(file.sha256)
        if source is not None and is_right(source, file):
            os.link(source, target)
            return
        fetch(self._following.bucket.store, file, target, self._arrived)

    def _arrived(self, _: int) -> None:
        if self._stopping.is_set():
            raise _StoppedError

    def _no_room(self, needed: int, kept: Collection[str]) -> str:
        """Why so many bytes cannot be had, after removing what nobody uses; empty when they can."""
        for generation in self._local.removable(kept):
            if self._room() >= needed:
                break
            self._local.remove(generation)
        room = self._room()
        if room >= needed:
            return ""
        return f"it needs {needed} bytes, and {max(room, 0)} are left of the disk or its budget"

    def _room(self) -> int:
        free = shutil.disk_usage(self._local.root).free - RESERVE_BYTES
        budget = self._following.disk_budget
        return free if budget is None else min(free, budget - self._local.used_bytes())

    def _check_disk(self) -> None:
        if not self._local.lead():
            return
        exposed = self._local.exposed
        if exposed is not None:
            self._local.hide()
            if self._local.drop_what_is_damaged(exposed):
                self._proven.add(exposed)
                self._local.expose(exposed)


class _PutOff:
    """A pointer that could not be followed is tried again after a pause, which grows."""

    def __init__(self, shortest: float) -> None:
        self._shortest = shortest
        self._etag = ""
        self._pause = 0.0
        self._until = 0.0

    def applies_to(self, found: FoundPointer) -> bool:
        return found.etag == self._etag and time.monotonic() < self._until

    def next_time(self, found: FoundPointer) -> None:
        """It is about to be tried; if that fails, the next try has to wait."""
        again = found.etag == self._etag
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S) if again else self._shortest
        self._etag, self._until = found.etag, time.monotonic() + self._pause


class _StoppedError(Exception):
    """The worker ends; what has arrived so far stays for the next one."""


def _previous(found: FoundPointer) -> Sequence[str]:
    """What a rollback would bring back, so that it need not be fetched again."""
    previous: Target | None = found.pointer.previous
    return [] if previous is None else [previous.generation]


def _seconds_saved(catalogue: Catalogue) -> Mapping[str, float]:
    """By checkpoint: the load times of all it holds, less what restoring its size costs."""
    return {
        checkpoint.id: sum(
            catalogue.items[name].load_time for name in checkpoint.items if name in catalogue.items
        )
        - catalogue.alpha * checkpoint.size_mb
        for checkpoint in catalogue.checkpoints
    }
