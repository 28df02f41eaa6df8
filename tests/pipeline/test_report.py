"""What a report says, and that its page stands on its own."""

from html.parser import HTMLParser
from typing import Any

import pytest

from readie_pipeline.report.coverage import COLD, cover, percentile
from readie_pipeline.report.figures import (
    MOST,
    Line,
    Restore,
    planned_against_measured,
    restores_by_size,
)
from readie_pipeline.report.page import make_page
from readie_pipeline.report.subject import Subject
from readie_wire.catalogue import Catalogue, CatalogueCheckpoint, Item
from readie_wire.manifest import CheckpointMeta, Manifest, StartupSeconds

CATALOGUE = Catalogue(
    flavor="cpu",
    alpha=0.001,
    items={
        "numpy": Item(0.2, 10),
        "pandas": Item(0.8, 30, dependencies=("numpy",)),
        "rare": Item(0.5, 5),
    },
    checkpoints=(
        CatalogueCheckpoint("checkpoint_0"),
        CatalogueCheckpoint("checkpoint_1", ("numpy", "pandas"), ("pandas",), 40.0),
    ),
)
REQUESTS = [["pandas"], ["pandas", "rare"], ["rare"], ["left_pad"], []]
COUNTS = [2, 1, 1, 3, 1]
STARTUP = StartupSeconds(0.4, 0.2)


def manifest(**changes: Any) -> Manifest:
    given: dict[str, Any] = {"runtime": "gvisor", "startup_s": STARTUP, "planned_alpha": 0.002}
    return Manifest(
        flavor="cpu",
        created="20260102T030405",
        python="3.11.7",
        catalogue_sha256="",
        checkpoints=(),
        **given | changes,
    ).sealed()


def test_coverage_prices_the_corpus_as_a_gateway_would() -> None:
    covered = cover(CATALOGUE, manifest(), REQUESTS, COUNTS)
    assert covered.workloads == 8
    assert (covered.ready, covered.partly, covered.cold) == (2, 2, 0)
    assert (covered.unmeasured, covered.idle) == (3, 1)
    assert {name: one.workloads for name, one in covered.service.items()} == {
        "checkpoint_0": 1,
        "checkpoint_1": 3,
        COLD: 0,
    }
    assert covered.service["checkpoint_1"].saved_s == pytest.approx(2 * 0.96 + 0.96)
    assert covered.cold_s == pytest.approx(2 * 1.0 + 1.5 + 0.5)
    assert covered.chosen_s == pytest.approx(2 * 0.04 + 0.54 + 0.5)
    assert covered.still_cold["rare"].seconds == pytest.approx(1.0)
    assert covered.still_cold["rare"].workloads == 2
    assert covered.unknown == {"left_pad": 3}
    assert covered.saved_share == pytest.approx(1 - 1.12 / 4.0)


def test_predicted_starts_include_what_a_start_costs_anyway() -> None:
    covered = cover(CATALOGUE, manifest(), REQUESTS, COUNTS)
    assert percentile(covered.starts, 0.5) == pytest.approx((0.4 + 1.0, 0.2 + 0.04))
    assert percentile(covered.starts, 1.0) == pytest.approx((0.4 + 1.5, 0.2 + 0.54))
    assert percentile([], 0.5) == (0.0, 0.0)


class Outline(HTMLParser):
    """Tags that are open, the text of the headings, and every reference to elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.elsewhere: list[str] = []
        self._in_heading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_heading = tag in ("h1", "h2")
        self.elsewhere += [
            value or ""
            for name, value in attrs
            if name in ("src", "href") and not (value or "").startswith("#")
        ]

    def handle_data(self, data: str) -> None:
        if self._in_heading:
            self.headings.append(data)
            self._in_heading = False


def page(*, requests: list[list[str]] | None = REQUESTS, **changes: Any) -> str:
    """A report; ``changes`` are of the manifest, ``requests`` ``None`` for no corpus."""
    about = manifest(**changes)
    metas = {
        "checkpoint_0": CheckpointMeta("checkpoint_0", about.runtime, restore_s=0.2),
        "checkpoint_1": CheckpointMeta("checkpoint_1", about.runtime, restore_s=0.25),
    }
    covered = None
    if requests is not None:
        covered = cover(CATALOGUE, about, requests, [1] * len(requests))
    return make_page(Subject(about, CATALOGUE, metas, covered))


def test_the_page_needs_nothing_from_elsewhere() -> None:
    outline = Outline()
    outline.feed(page())
    assert outline.headings[0].startswith("Generation 20260102T030405-")
    assert outline.headings[1:] == [
        "Restores",
        "Coverage of the corpus",
        "Seconds saved",
        "Still imported at each call",
        "Not measured",
        "This generation",
    ]
    assert outline.elsewhere == []


def test_the_page_holds_planned_and_measured_restores_side_by_side() -> None:
    text = page()
    assert '>0.280</td><td data-value="0.25" class="n">0.250</td>' in text
    assert "Size costs 1.00 ms per MB" in text
    assert "2.00 ms per MB was planned" in text


def test_where_no_slope_was_found_no_line_is_told_of() -> None:
    for runtime in ("fork", "gvisor"):
        text = page(runtime=runtime, planned_alpha=0.001)
        assert "no slope could be fitted" in text
        assert "fitted by least squares" not in text


def test_forks_are_fitted_and_their_size_keeps_its_price() -> None:
    startup = StartupSeconds(0.4, 0.005, 2.0, per_mb=0.00025)
    text = page(runtime="fork", planned_alpha=0.001, startup_s=startup)
    assert "Size costs 0.25 ms per MB on a floor of 5 ms" in text
    assert "the price of size stays 1.00 ms per MB as planned, for memory" in text
    covered = cover(CATALOGUE, manifest(runtime="fork", startup_s=startup), [["pandas"]], [1])
    assert percentile(covered.starts, 1.0) == pytest.approx((0.4 + 2.0, 0.005 + 0.01))


def test_a_generation_that_does_not_tell_what_was_planned_still_has_its_line() -> None:
    text = page(planned_alpha=0.0)
    assert "Size costs 1.00 ms per MB" in text
    assert "what was planned is not recorded" in text


@pytest.mark.parametrize("requests", [None, [], [["left_pad"]], [["pandas"]]])
def test_a_page_can_be_made_of_any_corpus(requests: list[list[str]] | None) -> None:
    assert "checkpoint_1" in page(requests=requests)


def test_a_hundred_checkpoints_do_not_make_a_figure_of_a_hundred_rows() -> None:
    """The table has them all; the figure shows the worst planned."""
    restores = [Restore(f"checkpoint_{n}", n, n / 100, n / 50) for n in range(1, 102)]
    drawing = planned_against_measured(restores)
    assert drawing.count(">checkpoint_") == MOST
    assert ">checkpoint_101<" in drawing
    assert ">checkpoint_1<" not in drawing
    assert "101 restores, which take 0.02 to 2.02 s" in restores_by_size(
        restores, None, Line(0.01, 0.1)
    )


def test_what_stands_in_a_manifest_cannot_become_markup() -> None:
    assert "<script>alert" not in page(python_path="<script>alert", rootfs="<script>alert")


def test_the_same_generation_gives_the_same_page() -> None:
    assert page() == page()
