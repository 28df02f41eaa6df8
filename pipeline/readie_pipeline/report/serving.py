"""The part of a report about a corpus: who is served, what that saves, what stays cold."""

from collections.abc import Iterable

from readie_pipeline.report.coverage import COLD, Coverage, percentile
from readie_pipeline.report.figures import starts_by_share
from readie_pipeline.report.markup import (
    NOTHING,
    Cell,
    Column,
    Html,
    dotted,
    figure,
    figures,
    names,
    number,
    paragraph,
    section,
    table,
    text,
)
from readie_pipeline.report.subject import Subject

_LISTED = 20  # items and names in each list


def coverage_section(covered: Coverage) -> Html:
    """How much of the corpus starts behind its imports, and how soon."""
    kinds = (
        ("everything is in the checkpoint", covered.ready),
        ("the checkpoint has a part, the rest is imported", covered.partly),
        ("no checkpoint is cheaper than a cold start", covered.cold),
        ("imports only what nobody has measured", covered.unmeasured),
        ("imports nothing", covered.idle),
    )
    rows = [[Cell(text(kind)), *_shares(count, covered.workloads)] for kind, count in kinds]
    columns = (
        Column("Workloads for which"),
        Column("Workloads", numeric=True),
        Column("Share", numeric=True),
    )
    return section(
        "coverage",
        "Coverage of the corpus",
        paragraph(_how_soon(covered)),
        figures(
            _starts(covered),
            table(f"{covered.workloads:,} workloads by what they find", columns, rows),
        ),
    )


def _how_soon(covered: Coverage) -> str:
    if not covered.starts:
        return "No workload of the corpus needs a measured package."
    (cold, chosen), (slow_cold, slow_chosen) = (
        percentile(covered.starts, share) for share in (0.5, 0.9)
    )
    return (
        f"Half of the {covered.measured:,} workloads that need a measured package start within "
        f"{chosen:.2f} s instead of {cold:.2f} s, nine tenths within {slow_chosen:.2f} s instead of "
        f"{slow_cold:.2f} s: predicted as gateways do, the fixed cost of a start included."
    )


def _starts(covered: Coverage) -> Html:
    if not covered.starts:
        return NOTHING
    caption = "How many of these workloads have started after how long, predicted."
    return figure(starts_by_share(covered.starts), caption)


def savings_section(about: Subject, covered: Coverage) -> Html:
    """Seconds saved by checkpoint, the largest first."""
    canonical = {one.id: one for one in about.catalogue.checkpoints}
    most = max((one.saved_s for one in covered.service.values()), default=0.0)
    rows = []
    for name, one in sorted(covered.service.items(), key=lambda entry: -entry[1].saved_s):
        checkpoint = canonical.get(name)
        imports = (
            names(about.leading(checkpoint), ()) if checkpoint else Cell(text("no checkpoint"))
        )
        each = one.saved_s / one.workloads if one.workloads else None
        rows.append(
            [
                Cell(text("cold start" if name == COLD else name)),
                imports,
                number(one.workloads, 0),
                number(one.saved_s, 1, one.saved_s / most if most else 0.0),
                number(each, 2),
            ]
        )
    columns = (
        Column("Start"),
        Column("Imports"),
        Column("Workloads", numeric=True),
        Column("Saved, s", numeric=True),
        Column("Saved by each, s", numeric=True),
    )
    lead = (
        f"Over the corpus, {covered.cold_s:,.1f} s of imports become {covered.chosen_s:,.1f} s with what "
        f"sizes cost. Every workload counts for the start that is cheapest for it."
    )
    caption = "Seconds saved by each checkpoint, the most first"
    return section(
        "savings", "Seconds saved", paragraph(lead), table(caption, columns, rows, ordered_by=3)
    )


def still_cold_section(about: Subject, covered: Coverage) -> Html:
    held = {name for one in about.catalogue.checkpoints for name in one.items}
    ranked = sorted(covered.still_cold.items(), key=lambda entry: (-entry[1].seconds, entry[0]))
    total = sum(one.seconds for _, one in ranked)
    if not ranked:
        lead = "Nothing that was measured: every workload finds its imports in a checkpoint."
        return section("cold", "Still imported at each call", paragraph(lead))
    lead = (
        f"{total:,.1f} s over the corpus are still imports. An item that a checkpoint holds is among them "
        f"where a smaller checkpoint and an import are cheaper than the larger checkpoint."
    )
    rows = [
        [
            Cell(dotted([name])),
            Cell(text("yes" if name in held else "no")),
            number(one.workloads, 0),
            number(one.seconds, 2, one.seconds / ranked[0][1].seconds if one.seconds else 0.0),
        ]
        for name, one in ranked[:_LISTED]
    ]
    columns = (
        Column("Item"),
        Column("In a checkpoint"),
        Column("Workloads", numeric=True),
        Column("Imports, s", numeric=True),
    )
    caption = _counted(len(ranked), "items that are imported at each call, the costliest first")
    return section(
        "cold",
        "Still imported at each call",
        paragraph(lead),
        table(caption, columns, rows, ordered_by=3),
    )


def unmeasured_section(covered: Coverage) -> Html:
    ranked = sorted(covered.unknown.items(), key=lambda entry: (-entry[1], entry[0]))
    if not ranked:
        lead = "Everything that the corpus imports was measured."
        return section("unmeasured", "Not measured", paragraph(lead))
    lead = (
        "Names that workloads import and the catalogue does not know: not installed where it was made, "
        "left out of the measurements, or failed there. They are imported at each call, and not priced."
    )
    rows = [
        [Cell(dotted([name])), *_shares(count, covered.workloads)]
        for name, count in ranked[:_LISTED]
    ]
    columns = (Column("Name"), Column("Workloads", numeric=True), Column("Share", numeric=True))
    caption = _counted(len(ranked), "names that nobody has measured, the most frequent first")
    return section(
        "unmeasured",
        "Not measured",
        paragraph(lead),
        table(caption, columns, rows, ordered_by=1),
    )


def _shares(count: int, total: int) -> Iterable[Cell]:
    share = count / total if total else 0.0
    return number(count, 0), Cell(text(f"{share:.1%}"), share, share)


def _counted(count: int, what: str) -> str:
    return f"The first {_LISTED} of {count:,} {what}" if count > _LISTED else f"{count} {what}"
