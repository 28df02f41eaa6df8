"""``python -m readie_gateway.slimming FILE``: a large catalogue, made small for a gateway.

Reading hundreds of megabytes takes seconds in which the interpreter's lock is hardly ever free, and
memory that is never given back. So a gateway lets a process of its own do it, whose output is the hash of
the file's bytes, a line feed, and the bytes of a catalogue that prices every call the same.
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from readie_wire.catalogue import CatalogueError, dump_catalogue, load_catalogue
from readie_wire.slimming import slimmed

CHUNK_BYTES = 1 << 20
NICENESS = 5  # calls go first, but on a busy machine it must come to its turn as well


def main() -> int:
    """Answers the exit status: 1 for a file that is no catalogue, with the reason on stderr."""
    os.nice(NICENESS)
    digest, gateway = hashlib.sha256(), os.getppid()

    def chunks() -> Iterator[bytes]:
        with Path(sys.argv[1]).open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                if os.getppid() != gateway:
                    sys.exit("the gateway that wanted it is gone")
                digest.update(chunk)
                yield chunk

    try:
        slim = slimmed(load_catalogue(chunks()))
    except (CatalogueError, OSError) as error:
        sys.stderr.write(str(error))
        return 1
    sys.stdout.buffer.write(digest.hexdigest().encode() + b"\n" + dump_catalogue(slim))
    return 0


if __name__ == "__main__":
    sys.exit(main())
