"""The fixed planner: exactly the import sets it is given, none by default."""

from collections.abc import Sequence

from readie_pipeline.errors import PlanError
from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.plan.plan import Plan, PlanEntry


def parse_imports(text: str) -> tuple[str, ...]:
    """``"numpy, pandas"`` → ``("numpy", "pandas")``. Raises `PlanError` for what is no module."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise PlanError(f"{name!r} is no module name; give names as in `import numpy.linalg`")
    return names


def plan_fixed(
    import_sets: Sequence[Sequence[str]], metadata: Metadata, *, flavor: str, alpha: float
) -> Plan:
    """One entry for each set, in the order given."""
    entries = []
    for imports in import_sets:
        items = metadata.held_by(imports)
        entries.append(PlanEntry(tuple(imports), items, size_mb=metadata.size_mb(items)))
    return Plan("fixed", flavor, alpha, tuple(entries))
