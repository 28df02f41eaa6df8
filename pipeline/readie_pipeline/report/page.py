"""Puts a generation and what it does for a corpus on one self-contained HTML page."""

import base64
import hashlib
from datetime import UTC, datetime
from html import escape
from importlib.resources import files

from readie_pipeline.report.coverage import percentile
from readie_pipeline.report.markup import (
    Cell,
    Column,
    Html,
    join,
    key_figures,
    paragraph,
    section,
    table,
    text,
)
from readie_pipeline.report.restoring import remarks_section, restores_section
from readie_pipeline.report.serving import (
    coverage_section,
    savings_section,
    still_cold_section,
    unmeasured_section,
)
from readie_pipeline.report.subject import Subject

_MB = 2**20  # bytes
_CONTENTS = {
    "restores": "Restores",
    "coverage": "Coverage",
    "savings": "Seconds saved",
    "cold": "Still imported",
    "unmeasured": "Not measured",
    "about": "This generation",
}


def make_page(about: Subject) -> str:
    """One file that asks nothing of the network: its policy would refuse to."""
    style = files(__package__).joinpath("page.css").read_text()
    script = files(__package__).joinpath("sorting.js").read_text()
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    title = escape(f"Generation {about.manifest.generation}")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title} - Readie</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<header><h1>{title}</h1>{_introduction(about)}</header>\n"
        f"<main>\n{_sections(about)}\n</main>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _introduction(about: Subject) -> Html:
    manifest = about.manifest
    made = datetime.strptime(manifest.created, "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    words = (
        f"{manifest.flavor}, {manifest.runtime}, Python {manifest.python}, "
        f"captured {made:%Y-%m-%d %H:%M} UTC"
    )
    links = "".join(
        f'<li><a href="#{anchor}">{name}</a></li>'
        for anchor, name in _CONTENTS.items()
        if about.coverage is not None or anchor in ("restores", "about")
    )
    contents = Html(f'<nav aria-label="Contents"><ul>{links}</ul></nav>')
    return join(paragraph(words, soft=True), contents)


def _sections(about: Subject) -> Html:
    covered = about.coverage
    parts = [_at_a_glance(about), restores_section(about)]
    if covered is None:
        parts.append(paragraph("There was no corpus to hold this generation against.", soft=True))
    else:
        parts += [
            coverage_section(covered),
            savings_section(about, covered),
            still_cold_section(about, covered),
            unmeasured_section(covered),
        ]
    return join(*parts, remarks_section(about), _about(about))


def _at_a_glance(about: Subject) -> Html:
    checkpoints = about.catalogue.checkpoints
    on_disk = sum(meta.bytes_on_disk for meta in about.metas.values()) / _MB
    entries = []
    if (covered := about.coverage) is not None and covered.starts:
        cold, chosen = percentile(covered.starts, 0.5)
        entries += [
            (
                "Imports saved",
                f"{covered.saved_share:.0%}",
                f"of {covered.cold_s:,.1f} s over the corpus, sizes priced in",
            ),
            ("Median start", f"{chosen:.2f} s", f"instead of {cold:.2f} s cold"),
            (
                "Behind their imports",
                f"{covered.ready / covered.workloads:.0%}",
                f"{covered.ready:,} of {covered.workloads:,} workloads, entirely",
            ),
        ]
    memory = sum(one.size_mb for one in checkpoints)
    remark = f"{memory:,.0f} MB of memory, {on_disk:,.0f} MB on disk"
    return key_figures([*entries, ("Checkpoints", f"{len(checkpoints)}", remark)])


def _about(about: Subject) -> Html:
    manifest, catalogue = about.manifest, about.catalogue
    facts = {
        "Generation": manifest.generation,
        "Catalogue, SHA-256": manifest.catalogue_sha256,
        "Interpreter": f"{manifest.python_path} (Python {manifest.python})",
        "Runtime": " ".join((manifest.runtime, str(manifest.gvisor.get("version", "")))),
        "Root filesystem": " ".join((manifest.rootfs, manifest.rootfs_digest)),
        "Cold start of nothing": f"{manifest.startup_s.cold:.3f} s",
        "Restore of nothing": f"{manifest.startup_s.restore:.3f} s",
        "Price of size (alpha)": f"{catalogue.alpha:.6f} s/MB, {about.planned.alpha:.6f} planned",
        "Measured items": f"{len(catalogue.items):,}",
    }
    rows = [
        [Cell(text(name)), Cell(Html(f"<code>{escape(value)}</code>"))]
        for name, value in facts.items()
    ]
    installed = ", ".join(
        f"{name} {version}".strip() for name, version in sorted(catalogue.distributions.items())
    )
    return section(
        "about",
        "This generation",
        table("Facts", (Column("What"), Column("Value")), rows),
        paragraph("1 MB is 2^20 bytes. Times are medians of the machine that captured.", soft=True),
        Html(
            f"<details><summary>{len(catalogue.distributions)} installed distributions</summary>"
            f"<p>{escape(installed)}</p></details>"
        ),
    )
