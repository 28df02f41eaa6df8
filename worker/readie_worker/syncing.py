"""Follows a bucket: fetches what its pointer names, proves it, and lets it be served."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from readie_infra.aside import aside
from readie_infra.bucket import (
    Bucket,
    BucketError,
    CorruptObjectError,
    FoundPointer,
    NotPublishedError,
    fetch,
)
from readie_infra.objects import ObjectError, ObjectMissingError
from readie_wire.catalogue import CatalogueError, load_catalogue
from readie_wire.holdings import Refusal, RefusalKind, SyncState
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
from readie_worker.local_generations import LocalGenerations, Stored, is_right
from readie_worker.making_room import DiskRoom
from readie_worker.putting_off import PutOff
from readie_worker.valuing import expected_savings

END_GRACE_S = 2.0  # for a step to end with its worker, far less than any grace of a supervisor

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
    is served when all of it is there, so that no call finds less than before. ``on_change`` is
    called, in a thread, whenever something has arrived that can be served.

    ``state`` and ``stored`` are replaced as a whole, so that any thread may read them.
    """

    def __init__(self, following: Following, machine: Machine) -> None:
        self._following = following
        self._machine = machine
        self._local = LocalGenerations(following.folder / machine.flavor / following.rootfs)
        self._disk = DiskRoom(self._local, following.disk_budget)
        self.root = self._local.current
        self.state = SyncState()
        self.stored: Mapping[str, Mapping[str, Stored]] = {}
        self.on_change: Callable[[], object] = lambda: None
        self._left_out: tuple[str, Mapping[str, Refusal]] = ("", {})  # of which generation
        self._progress = ""
        self._synced: FoundPointer | None = None
        self._put_off = PutOff(following.poll)
        self._proven: set[str] = set()  # generations whose files were hashed by this process
        self._stopping = threading.Event()

    @property
    def error(self) -> str:
        """Why the bucket's current generation is not served."""
        return self.state.error

    def left_out(self, generation: str) -> Mapping[str, Refusal]:
        """Checkpoints of a generation that are not brought here."""
        which, left_out = self._left_out
        return left_out if which == generation else {}

    @property
    def notes(self) -> Sequence[str]:
        left_out = [f"{name} is not synced: {reason}" for name, reason in self._left_out[1].items()]
        error = self.error and f"the bucket is not followed: {self.error}"
        return [*left_out, *filter(None, [self._progress, error])]

    async def open(self) -> None:
        """Check what an earlier process left on the disk. Call it before anything is served."""
        await asyncio.to_thread(self._check_disk)

    async def run(
        self,
        in_use: Callable[[], Collection[str]],
        pause: Callable[[float], Awaitable[bool | None]] = asyncio.sleep,
    ) -> None:
        """Follow for ever. ``in_use`` tells which generations' files are needed here.

        ``pause`` waits for the next look. It may come back early and tell of news: then what could
        not be followed before is tried again at once.
        """
        step: asyncio.Future[None] | None = None
        try:
            while True:
                self._local.hold(in_use())
                step = asyncio.ensure_future(aside(self._step))
                await asyncio.shield(step)
                if await pause(self._following.poll):
                    self._put_off.forget()
        finally:
            self._stopping.set()
            if step is None or await _ended(step):
                self._local.close()

    def _step(self) -> None:
        if self._stopping.is_set():
            return
        try:
            leads = self._local.lead()  # else another worker of this machine does it for all
            self._tell(leads=leads)
            if leads:
                self._follow()
            self.stored = self._local.stored()
        except OSError as error:  # of the disk: what was read from it before is served on
            self._not_followed(error)

    def _follow(self) -> None:
        try:
            found = self._look()
            if found is None and self._may_bring_more():
                found = self._synced
            if found is None:
                self._tell(error="")
            elif not self._put_off.applies_to(found):
                self._put_off.next_time(found)
                self._sync(found)
        except (BucketError, ObjectError, GenerationError, OSError) as error:
            self._not_followed(error)
        finally:
            self._progress = ""
            self._tell(arriving="", arriving_bytes=0, arrived_bytes=0)

    def _not_followed(self, error: Exception) -> None:
        if str(error) != self.error:
            log.warning("bucket not followed", reason=str(error), kept=self._local.exposed)
        self._tell(error=str(error), failures=self.state.failures + 1)

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

    def _may_bring_more(self) -> bool:
        """Something was left out for want of room, and by now there may be some."""
        generation, left_out = self._left_out
        if self._synced is None or not left_out:
            return False
        sizes = self.stored.get(generation, {})
        least = min((sizes[name].size for name in left_out if name in sizes), default=0)
        if not self._disk.could_hold(least):
            return False
        return self._disk.left() >= least or any(self._local.removable({generation}))

    def _sync(self, found: FoundPointer) -> None:
        """Bring a generation here, whole or as much of it as there is room for."""
        self._go_on()
        self._synced = None
        began, before = time.monotonic(), self.state.fetched_bytes
        listed = self._following.bucket.packing_list(
            self._machine.flavor, self._following.rootfs, found.pointer.target
        )
        self._tell(arriving=listed.generation, arriving_bytes=listed.size)
        place = self._local.begin(listed)
        self.stored = self._local.stored()
        known = self._local.known_files()
        if listed.generation not in self._proven:
            self._local.drop_what_is_damaged(listed.generation)
            self._proven.add(listed.generation)
        for file in listed.files:
            if file.checkpoint is None:
                self._bring(listed, file, known)
        order = self._by_value(place, listed)
        if self._local.exposed is None:
            self._expose(listed.generation)
        previous = _previous(found)
        left_out = self._bring_checkpoints(listed, order, known, previous)
        if self._local.exposed != listed.generation:
            self._expose(listed.generation)
        seconds = time.monotonic() - began
        self._synced = found
        self._tell(
            error="", syncs=self.state.syncs + 1, seconds=round(self.state.seconds + seconds, 3)
        )
        log.info(
            "generation synced",
            generation=listed.generation,
            seconds=round(seconds, 3),
            bytes=listed.size,
            fetched_bytes=self.state.fetched_bytes - before,
            left_out=len(left_out),
        )
        for generation in self._local.removable({listed.generation, *previous}):
            self._disk.remove(generation, "it is neither current nor previous")

    def _bring_checkpoints(
        self,
        listed: PackingList,
        order: Sequence[str],
        known: Mapping[str, Path],
        previous: Collection[str],
    ) -> Mapping[str, Refusal]:
        """All that there is room for; those left out. Raises for an object that is not right.

        It does so after the others have been brought: a first generation is served without it.
        """
        left_out: dict[str, Refusal] = {}
        self._left_out = (listed.generation, left_out)
        spoilt: BucketError | ObjectError | None = None
        for checkpoint in order:
            try:
                refusal = self._bring_checkpoint(listed, checkpoint, known, previous)
            except (CorruptObjectError, ObjectMissingError) as error:
                spoilt = spoilt or error
                refusal = Refusal(RefusalKind.DAMAGED, str(error))
            if refusal is not None:
                left_out = {**left_out, checkpoint: refusal}
                self._left_out = (listed.generation, left_out)
        if spoilt is not None:
            raise spoilt
        return left_out

    def _by_value(self, place: Path, listed: PackingList) -> Sequence[str]:
        """The checkpoints, what is expected to save most first. Raises `GenerationError`."""
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
        saved = expected_savings(manifest, catalogue)
        return sorted(listed.checkpoint_sizes, key=lambda name: (-saved.get(name, 0.0), name))

    def _bring_checkpoint(
        self,
        listed: PackingList,
        checkpoint: str,
        known: Mapping[str, Path],
        previous: Collection[str],
    ) -> Refusal | None:
        """Why it is left out; None when it is here. Raises `BucketError`, `ObjectError`, `OSError`."""
        size = listed.checkpoint_sizes[checkpoint]
        if self._local.has(listed, checkpoint):
            self._tell(arrived_bytes=self.state.arrived_bytes + size)
            return None
        files = [file for file in listed.files if file.checkpoint == checkpoint]
        lacking = [file for file in files if not self._local.target(listed, file).exists()]
        new = sum(file.size for file in lacking if file.sha256 not in known)
        if reason := self._disk.make(new, listed.generation, previous):
            return Refusal(RefusalKind.DISK, reason)
        began, before = time.monotonic(), self.state.fetched_bytes
        self._progress = f"{checkpoint} of {listed.generation} is arriving"
        for file in files:
            self._bring(listed, file, known)
        self._local.admit(listed, checkpoint)
        self._changed()
        log.info(
            "checkpoint synced",
            checkpoint=f"{listed.generation}/{checkpoint}",
            seconds=round(time.monotonic() - began, 3),
            bytes=size,
            fetched_bytes=self.state.fetched_bytes - before,
            still_to_come=max(0, self.state.arriving_bytes - self.state.arrived_bytes),
        )
        return None

    def _bring(self, listed: PackingList, file: PublishedFile, known: Mapping[str, Path]) -> None:
        """A file to its target: left there by an earlier try, from another generation, or fetched."""
        target = self._local.target(listed, file)
        if not is_right(target, file):
            target.unlink(missing_ok=True)
            source = known.get(file.sha256)
            if source is None or not is_right(source, file):
                fetch(self._following.bucket.store, file, target, self._arrived)
                return
            os.link(source, target)
        self._tell(arrived_bytes=self.state.arrived_bytes + file.size)

    def _arrived(self, size: int) -> None:
        self._go_on()
        self._tell(
            fetched_bytes=self.state.fetched_bytes + size,
            arrived_bytes=self.state.arrived_bytes + size,
        )

    def _go_on(self) -> None:
        """Raises `_StoppedError` when the worker ends."""
        if self._stopping.is_set():
            raise _StoppedError

    def _expose(self, generation: str) -> None:
        self._local.expose(generation)
        self._changed()

    def _changed(self) -> None:
        self.stored = self._local.stored()
        self.on_change()

    def _tell(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)

    def _check_disk(self) -> None:
        if not self._local.lead():
            return
        exposed = self._local.exposed
        if exposed is not None:
            self._local.hide()
            if self._local.drop_what_is_damaged(exposed):
                self._proven.add(exposed)
                self._local.expose(exposed)


class _StoppedError(Exception):
    """The worker ends; what has arrived so far stays for the next one."""


async def _ended(step: asyncio.Future[None]) -> bool:
    """Whether it has, after a moment for what is being written.

    A bucket may hang for minutes, and nobody who ends waits for that: what a step leaves half done
    is whole for the next worker. Its locks are then this process's until it is gone.
    """
    await asyncio.wait({step}, timeout=END_GRACE_S)
    if not step.done():
        step.cancel()
        return False
    with contextlib.suppress(_StoppedError, asyncio.CancelledError):
        step.result()
    return True


def _previous(found: FoundPointer) -> Sequence[str]:
    """What a rollback would bring back, so that it need not be fetched again."""
    previous: Target | None = found.pointer.previous
    return [] if previous is None else [previous.generation]
