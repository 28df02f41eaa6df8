"""Puts a generation and what it does for a corpus on one self-contained HTML page."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from readie_pipeline.report.coverage import Coverage
from readie_pipeline.report.figures import Restore, bars, restores_by_size
from readie_wire.catalogue import Catalogue
from readie_wire.manifest import CheckpointMeta, Manifest

_LISTED = 15  # items and names in each list

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1c2128; background: #fff; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #d0d7de; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { max-width: 100%; height: auto; }
.big { font-size: 1.4rem; }
"""


def make_page(
    manifest: Manifest,
    catalogue: Catalogue,
    metas: Mapping[str, CheckpointMeta],
    coverage: Coverage | None,
) -> str:
    """``metas`` are by checkpoint id; without a corpus ``coverage`` is ``None``."""
    sections = [_head(manifest, catalogue), _restores(manifest, catalogue, metas)]
    if coverage is not None:
        sections += [_coverage(coverage), _still_cold(coverage)]
    title = escape(f"Generation {manifest.generation}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{''.join(sections)}</body></html>\n"
    )


def _head(manifest: Manifest, catalogue: Catalogue) -> str:
    startup = manifest.startup_s
    facts = {
        "flavor": manifest.flavor,
        "runtime": manifest.runtime,
        "Python": manifest.python,
        "alpha": f"{catalogue.alpha:.6f} s/MB",
        "cold start of nothing": f"{startup.cold:.3f} s",
        "restore of nothing": f"{startup.restore:.3f} s",
        "measured items": str(len(catalogue.items)),
    }
    return _table(["", ""], [[name, value] for name, value in facts.items()])


def _restores(manifest: Manifest, catalogue: Catalogue, metas: Mapping[str, CheckpointMeta]) -> str:
    floor_s = manifest.startup_s.restore
    restores, rows = [], []
    for one in catalogue.checkpoints:
        meta = metas[one.id]
        planned = floor_s + catalogue.alpha * one.size_mb
        measured = ""
        if meta.restore_s is not None:
            restores.append(Restore(one.id, one.size_mb, meta.restore_s))
            measured = f"{meta.restore_s:.3f}"
        disk = f"{meta.bytes_on_disk / 2**20:.1f}"
        imports = ", ".join(one.canonical) or "nothing"
        rows.append([one.id, imports, f"{one.size_mb:.1f}", disk, f"{planned:.3f}", measured])
    columns = ["checkpoint", "imports", "MB", "MB on disk", "predicted restore, s", "measured, s"]
    plot = restores_by_size(restores, catalogue.alpha, floor_s) if restores else ""
    return f"<h2>Restores</h2>{plot}{_table(columns, rows, numbers=4)}"


def _coverage(coverage: Coverage) -> str:
    served = {name or "cold start": count for name, count in sorted(coverage.served.items())}
    saved = {name or "cold start": coverage.saved_s[name] for name in sorted(coverage.served)}
    known = sum(coverage.served.values())
    rows = [[name, str(count), f"{saved[name]:.1f}"] for name, count in served.items()]
    return (
        f'<h2>What the corpus gains</h2><p class="big">{coverage.saved_share:.0%} of '
        f"{coverage.cold_s:.1f} s of imports saved</p><p>{known} of {coverage.workloads} workloads "
        f"need a measured package.</p>{bars(saved, 'seconds saved', 'seconds saved')}"
        + _table(["start", "workloads", "seconds saved"], rows, numbers=2)
    )


def _still_cold(coverage: Coverage) -> str:
    cold = _most(coverage.still_cold_s)
    unknown = _most(coverage.unknown)
    return (
        "<h2>What is still imported at each call</h2>"
        + _table(["item", "seconds"], [[n, f"{s:.2f}"] for n, s in cold.items()], numbers=1)
        + "<h2>What nobody has measured</h2>"
        + _table(["name", "workloads"], [[n, f"{c:.0f}"] for n, c in unknown.items()], numbers=1)
    )


def _most(values: Mapping[str, float]) -> dict[str, float]:
    ranked = sorted(values, key=lambda name: (-values[name], name))
    return {name: values[name] for name in ranked[:_LISTED]}


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """The last ``numbers`` columns are set as numbers."""
    first = len(columns) - numbers

    def row(cells: Sequence[str], tag: str) -> str:
        marked = (
            f"<{tag}{' class=n' if place >= first else ''}>{escape(cell)}</{tag}>"
            for place, cell in enumerate(cells)
        )
        return f"<tr>{''.join(marked)}</tr>"

    head = row(columns, "th") if any(columns) else ""
    return f"<table>{head}{''.join(row(cells, 'td') for cells in rows)}</table>"
