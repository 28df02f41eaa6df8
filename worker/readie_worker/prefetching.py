"""Keeps the files of the most valuable checkpoints in memory: the fastest tier of a worker.

Images that have just arrived or been verified are in the page cache; but where a generation is larger
than the memory, the last ones have pushed out the first, which are the most valuable. Those are read
once more, as many as fit.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from readie_worker.generations import META
from readie_worker.page_cache import cached_bytes, read_in, yield_to_others
from readie_worker.sandbox.api import Checkpoint

ROUND_S = 10.0  # between two looks at what the page cache still holds

log = structlog.stdlib.get_logger(__name__)


class Prefetcher:
    """Reads the files of checkpoints that ``by_value`` gives, as far as ``budget`` bytes go.

    Each checkpoint is read once. What the kernel takes back after that it needs for something else,
    and reading it in again and again would only be a fight. It runs in a thread of its own, with
    the lowest priority. `cached` tells what the page cache held when it was last looked at.
    """

    def __init__(self, by_value: Callable[[], Sequence[Checkpoint]], budget: int) -> None:
        self._by_value = by_value
        self._budget = budget
        self._read: set[str] = set()  # keys of checkpoints
        self._news = asyncio.Event()
        self._ended = threading.Event()
        self.cached: Mapping[str, int] = {}  # checkpoint key → bytes

    def look(self) -> None:
        """The checkpoints that can be restored have changed."""
        self._news.set()

    async def run(self) -> None:
        """For ever."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "prefetch", yield_to_others) as thread:
            try:
                while True:
                    self._news.clear()
                    await loop.run_in_executor(thread, self._round, self._by_value())
                    try:
                        async with asyncio.timeout(ROUND_S):
                            await self._news.wait()
                    except TimeoutError:
                        continue
            finally:
                self._ended.set()  # the thread is waited for, and stops at its next piece

    def _round(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Read what is new, then look what is there. In the thread."""
        self._read &= {checkpoint.key for checkpoint in checkpoints}
        cached: dict[str, int] = {}
        left = self._budget
        for checkpoint in checkpoints:
            try:
                files = image_files(checkpoint)
                size = sum(file.stat().st_size for file in files)
                if size <= left:
                    left -= size
                    self._bring(checkpoint, files)
                held = [cached_bytes(file) for file in files]
            except OSError as error:  # it has just been removed
                log.debug("not prefetched", checkpoint=checkpoint.key, reason=str(error))
                continue
            if files and None not in held:
                cached[checkpoint.key] = min(size, sum(one or 0 for one in held))
        self.cached = cached

    def _bring(self, checkpoint: Checkpoint, files: Sequence[Path]) -> None:
        if checkpoint.key in self._read:
            return
        for file in files:
            read_in(file, self._ended.is_set)
        if not self._ended.is_set():
            self._read.add(checkpoint.key)


def image_files(checkpoint: Checkpoint) -> Sequence[Path]:
    """What a restore of it reads; empty for one that a live process starts."""
    if checkpoint.path is None:
        return ()
    return sorted(
        file for file in checkpoint.path.iterdir() if file.is_file() and file.name != META
    )
