"""The HTML that a report is made of. All text becomes HTML here, and is escaped here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import NewType

Html = NewType("Html", str)
NOTHING = Html("")


@dataclass(frozen=True, slots=True)
class Cell:
    """``html`` as shown; ``value`` is what a number is ordered by; ``share`` (0 to 1) draws a bar;
    ``wide`` asks for room."""

    html: Html
    value: float | None = None
    share: float | None = None
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    head: str
    numeric: bool = False


def text(words: str) -> Html:
    return Html(escape(words))


def join(*parts: Html) -> Html:
    return Html("".join(parts))


def paragraph(words: str, *, soft: bool = False) -> Html:
    return Html(f"<p{' class=soft' if soft else ''}>{escape(words)}</p>")


def number(value: float | None, decimals: int, share: float | None = None) -> Cell:
    """An absent value is an empty cell, ordered below all others."""
    shown = NOTHING if value is None else text(f"{value:,.{decimals}f}")
    return Cell(shown, value, share)


def names(short: Sequence[str], whole: Sequence[str], limit: int = 6) -> Cell:
    """The names of ``short``, and all of ``whole`` where the reader asks for them."""
    shown = str(dotted(short[:limit])) or "nothing"
    if len(short) > limit:
        shown += f" and {len(short) - limit} more"
    if len(whole) > len(short[:limit]):
        shown += f"<details><summary>all {len(whole)}</summary>{dotted(whole)}</details>"
    return Cell(Html(shown), wide=True)


def dotted(modules: Sequence[str]) -> Html:
    """Names of modules; lines break after a dot rather than within a name."""
    return Html(escape(", ".join(modules)).replace(".", ".<wbr>"))


def section(anchor: str, heading: str, *parts: Html) -> Html:
    return Html(
        f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{escape(heading)}</h2>'
        f"{''.join(parts)}</section>"
    )


def figure(svg: str, caption: str) -> Html:
    """``svg`` is markup already, with a description of its own."""
    return Html(f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>")


def figures(*drawn: Html) -> Html:
    return Html(f'<div class="figures">{"".join(drawn)}</div>')


def key_figures(entries: Iterable[tuple[str, str, str]]) -> Html:
    """Each a name, a value and a remark."""
    shown = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(remark)}</small></dd></div>"
        for name, value, remark in entries
    )
    return Html(f'<dl class="key">{"".join(shown)}</dl>')


def table(
    caption: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    *,
    ordered_by: int | None = None,
) -> Html:
    """The first cell of a row is its head. With ``ordered_by``, the column it already descends by,
    readers can order it otherwise."""
    heads = []
    for place, column in enumerate(columns):
        order = ' aria-sort="descending"' if place == ordered_by else ""
        numeric = ' class="n"' if column.numeric else ""
        heads.append(f'<th scope="col"{numeric}{order}>{escape(column.head)}</th>')
    body = "".join(_row(columns, cells) for cells in rows)
    kind = ' class="sortable"' if ordered_by is not None else ""
    # A wide table scrolls by itself, also with the keyboard; the page never does.
    return Html(
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(caption)}"><table{kind}>'
        f"<caption><span>{escape(caption)}</span></caption><thead><tr>{''.join(heads)}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _row(columns: Sequence[Column], cells: Sequence[Cell]) -> str:
    shown = []
    for place, (column, cell) in enumerate(zip(columns, cells, strict=True)):
        classes = ["n"] * column.numeric + ["wide"] * cell.wide
        data = "" if cell.value is None else f' data-value="{cell.value!r}"'
        if cell.share is not None:
            classes.append("bar")
            data += f' style="--share:{cell.share:.1%}"'
        if classes:
            data += f' class="{" ".join(classes)}"'
        tag, scope = ("th", ' scope="row"') if place == 0 else ("td", "")
        shown.append(f"<{tag}{scope}{data}>{cell.html}</{tag}>")
    return f"<tr>{''.join(shown)}</tr>"
