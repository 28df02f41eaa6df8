"""What a report is about."""

from collections.abc import Mapping
from dataclasses import dataclass

from readie_pipeline.report.coverage import Coverage
from readie_pipeline.report.figures import Line, Restore
from readie_wire.catalogue import Catalogue, CatalogueCheckpoint
from readie_wire.manifest import CheckpointMeta, Manifest, size_matters


@dataclass(frozen=True, slots=True)
class Subject:
    """A generation. ``metas`` are by checkpoint id; without a corpus ``coverage`` is ``None``."""

    manifest: Manifest
    catalogue: Catalogue
    metas: Mapping[str, CheckpointMeta]
    coverage: Coverage | None

    @property
    def planned(self) -> Line:
        """What the planner reckoned with, on the floor that was measured; else what the catalogue has."""
        alpha = self.manifest.planned_alpha or self.catalogue.alpha
        return Line(alpha, self.manifest.startup_s.restore)

    @property
    def fitted(self) -> Line | None:
        """What was fitted to the restores; ``None`` where no slope could be."""
        startup = self.manifest.startup_s
        if not size_matters(self.manifest.runtime):
            return Line(startup.per_mb, startup.restore) if startup.per_mb else None
        if self.catalogue.alpha == self.manifest.planned_alpha:
            return None
        return Line(self.catalogue.alpha, startup.restore)

    def restores(self) -> list[Restore]:
        """Those that were measured, in the order of the catalogue."""
        found = []
        for one in self.catalogue.checkpoints:
            measured_s = self.metas[one.id].restore_s
            if measured_s is not None:
                found.append(Restore(one.id, one.size_mb, self.planned.at(one.size_mb), measured_s))
        return found

    def cold_s(self, one: CatalogueCheckpoint) -> float:
        """A cold start that imports all that the checkpoint holds, as the measurements have it."""
        items = self.catalogue.items
        return self.manifest.startup_s.cold + sum(
            items[name].load_time for name in one.items if name in items
        )

    def leading(self, one: CatalogueCheckpoint) -> tuple[str, ...]:
        """What it imports, without what other imports of it pull in."""
        return self.catalogue.graph.leading(one.canonical)
