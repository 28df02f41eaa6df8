"""The part of a report about restores: what they take, what was planned, what they replace."""

import statistics

from readie_pipeline.report.figures import MOST, planned_against_measured, restores_by_size
from readie_pipeline.report.markup import (
    NOTHING,
    Cell,
    Column,
    Html,
    figure,
    figures,
    join,
    names,
    number,
    paragraph,
    section,
    table,
    text,
)
from readie_pipeline.report.subject import Subject
from readie_wire.catalogue import CatalogueCheckpoint
from readie_wire.manifest import size_matters

_MB = 2**20  # bytes
_COLUMNS = (
    Column("Checkpoint"),
    Column("Imports"),
    Column("Memory, MB", numeric=True),
    Column("On disk, MB", numeric=True),
    Column("Cold, s", numeric=True),
    Column("Planned, s", numeric=True),
    Column("Measured, s", numeric=True),
    Column("Cold : measured", numeric=True),
)


def restores_section(about: Subject) -> Html:
    ordered = sorted(about.catalogue.checkpoints, key=lambda one: -one.size_mb)
    return section(
        "restores",
        "Restores",
        paragraph(_verdict(about)),
        _drawn(about),
        table(
            "Restores, the largest checkpoint first. Cold is a start that imports the same.",
            _COLUMNS,
            [_row(about, one) for one in ordered],
            ordered_by=2,
        ),
    )


def _verdict(about: Subject) -> str:
    """Planned and measured alpha, which one counts, and how well the line fits."""
    planned, fitted = about.planned, about.fitted
    if fitted is None:
        return (
            f"The planned price of size is kept, {planned.alpha:.6f} s/MB: no slope could be fitted to "
            "the restores."
        )
    if not size_matters(about.manifest.runtime):
        before = (
            f"the price of size stays {planned.alpha * 1000:.2f} ms per MB as planned, for memory"
        )
    elif about.manifest.planned_alpha:
        before = f"{planned.alpha * 1000:.2f} ms per MB was planned"
    else:
        before = "what was planned is not recorded"
    verdict = (
        f"Size costs {fitted.alpha * 1000:.2f} ms per MB on a floor of {fitted.floor_s * 1000:.0f} ms, "
        f"fitted by least squares; {before}."
    )
    missed = [abs(one.measured_s - fitted.at(one.size_mb)) for one in about.restores()]
    return (
        f"{verdict} The line misses a restore by {statistics.median(missed) * 1000:.0f} ms in the "
        f"median, by {max(missed) * 1000:.0f} ms at most."
    )


def _drawn(about: Subject) -> Html:
    restores = about.restores()
    if not restores:
        return paragraph("No restore was measured.", soft=True)
    line = "" if about.fitted is None else ", with the line fitted to them"
    many = len(restores) > MOST
    points = "" if many else ", each point named by its checkpoint's number"
    which = f" of the {MOST} checkpoints that were planned worst" if many else ""
    return figures(
        figure(
            restores_by_size(restores, about.fitted, about.planned),
            f"Restore time against size{points}{line}.",
        ),
        figure(
            planned_against_measured(restores),
            f"Planned against measured{which}: the measured floor plus the planned price of size, and "
            "the median of the restores after the capture.",
        ),
    )


def _row(about: Subject, one: CatalogueCheckpoint) -> list[Cell]:
    meta = about.metas[one.id]
    cold_s = about.cold_s(one)
    on_disk = meta.bytes_on_disk / _MB if meta.bytes_on_disk else None
    times = cold_s / meta.restore_s if meta.restore_s else None
    return [
        Cell(text(one.id)),
        names(about.leading(one), one.canonical),
        number(one.size_mb, 1),
        number(on_disk, 1),
        number(cold_s, 2),
        number(about.planned.at(one.size_mb), 3),
        number(meta.restore_s, 3),
        number(times, 1),
    ]


def remarks_section(about: Subject) -> Html:
    """What the safety gate had to say at the captures; nothing when it had nothing."""
    rows = [
        [Cell(text(one.id)), Cell(text(remark))]
        for one in about.catalogue.checkpoints
        for remark in about.metas[one.id].gate
    ]
    if not rows:
        return NOTHING
    lead = paragraph("What captures found that a clone may have to know about.")
    columns = (Column("Checkpoint"), Column("Remark"))
    return section(
        "remarks", "Remarks of the safety gate", join(lead, table("Remarks", columns, rows))
    )
