"""The distributions that a plan needs, as pinned requirement lines for a minimal root filesystem."""

from collections.abc import Iterable

from readie_pipeline.measure.metadata import Metadata
from readie_pipeline.plan.plan import Plan


def requirements_of(plan: Plan, metadata: Metadata) -> list[str]:
    """``numpy==2.0.2``; a bare name where no version was recorded. Sorted.

    Packages get the versions whose times and sizes the plan was built from.
    """
    versions: dict[str, str] = {}
    for name in _items(plan, metadata):
        measured = metadata.items[name]
        if measured.distribution:
            versions[measured.distribution] = measured.version
    return [f"{name}=={version}" if version else name for name, version in sorted(versions.items())]


def _items(plan: Plan, metadata: Metadata) -> Iterable[str]:
    for entry in plan.entries:
        yield from (name for name in (*entry.items, *entry.imports) if name in metadata.items)
