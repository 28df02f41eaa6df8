"""A catalogue that can price calls, from its bytes."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from readie_wire.catalogue import load_catalogue
from readie_wire.pricing import PricedCatalogue


@dataclass(frozen=True, slots=True)
class LoadedCatalogue:
    """A catalogue that can price calls.

    ``generation`` and ``python`` come from the manifest beside the file and are empty where there
    is none; ``sha256`` is of the file's bytes, and what workers name it by.
    """

    path: Path
    sha256: str
    priced: PricedCatalogue
    generation: str = ""
    python: str = ""

    @property
    def flavor(self) -> str:
        return self.priced.catalogue.flavor


def parse_catalogue(path: Path, data: bytes) -> LoadedCatalogue:
    """Raises `CatalogueError`. Blocks for seconds when there are hundreds of megabytes."""
    sha256 = hashlib.sha256(data).hexdigest()
    return LoadedCatalogue(path, sha256, PricedCatalogue(load_catalogue(data)))
