"""What notebooks and scripts usually import together, for an environment that tells nothing yet."""

from collections.abc import Sequence
from pathlib import Path

# "count module module…" a line, from the corpus in pipeline/data/datasets/cpu.json: modules that
# ten of its 830 workloads import, in the sets that at least two of them share.
_FILE = Path(__file__).with_name("usual_imports.txt")

ImportSet = tuple[str, ...]


def usual_imports() -> Sequence[tuple[ImportSet, int]]:
    """Sets of modules with how many workloads import them, the most frequent first."""
    sets = []
    for line in _FILE.read_text(encoding="ascii").splitlines():
        count, *modules = line.split()
        sets.append((tuple(modules), int(count)))
    return sets
