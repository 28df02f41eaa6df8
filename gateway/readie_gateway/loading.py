"""A catalogue that can price calls, from its file, without holding up the event loop."""

import asyncio
import hashlib
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from readie_wire.catalogue import CatalogueError, load_catalogue
from readie_wire.eligibility import CheckpointFacts, checkpoint_facts
from readie_wire.pricing import PricedCatalogue

# Read in a thread up to here: 0.1 s, less than a process needs to start.
LARGE_BYTES = 4 << 20
SLIMMING_S = 600.0  # 400 MB take 5 s on a quiet machine
REASON_BYTES = 2_000  # of what the process says when it fails


@dataclass(frozen=True, slots=True)
class LoadedCatalogue:
    """A catalogue that can price calls, with the facts of its checkpoints by id.

    ``generation`` and ``python`` come from the manifest beside the file and are empty where there
    is none; ``sha256`` is of the file's bytes, and what workers name it by.
    """

    path: Path
    sha256: str
    priced: PricedCatalogue
    facts: Mapping[str, CheckpointFacts]
    generation: str = ""
    python: str = ""

    @property
    def flavor(self) -> str:
        return self.priced.catalogue.flavor


async def load_file(path: Path) -> LoadedCatalogue:
    """Raises `CatalogueError` and `OSError`. Files of hundreds of megabytes exist: see `slimming`."""
    size = (await asyncio.to_thread(path.stat)).st_size
    if size > LARGE_BYTES:
        sha256, _, data = (await _slimmed(path)).partition(b"\n")
        return await asyncio.to_thread(_parsed, path, sha256.decode(), data)
    data = await asyncio.to_thread(path.read_bytes)
    return await asyncio.to_thread(_parsed, path, hashlib.sha256(data).hexdigest(), data)


def _parsed(path: Path, sha256: str, data: bytes) -> LoadedCatalogue:
    catalogue = load_catalogue(data)
    facts = {one.id: one for one in checkpoint_facts(catalogue)}
    return LoadedCatalogue(path, sha256, PricedCatalogue(catalogue), facts)


async def _slimmed(path: Path) -> bytes:
    command = (sys.executable, "-m", "readie_gateway.slimming", str(path))
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(SLIMMING_S):
            output, problem = await process.communicate()
    except TimeoutError as error:
        raise CatalogueError(f"it took longer than {SLIMMING_S:.0f} s to read") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 1:
        raise CatalogueError(problem[:REASON_BYTES].decode("utf-8", "replace"))
    if process.returncode != 0:
        raise CatalogueError(
            f"the process that read it ended with status {process.returncode}; "
            "where it was killed, give the gateway more memory"
        )
    return output
