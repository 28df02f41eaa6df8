"""What a report says, and that its page stands on its own."""

from html.parser import HTMLParser

import pytest

from readie_pipeline.report.coverage import cover
from readie_pipeline.report.page import make_page
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


def test_coverage_prices_the_corpus_as_a_gateway_would() -> None:
    coverage = cover(CATALOGUE, REQUESTS)
    assert coverage.workloads == 5
    assert coverage.served == {"checkpoint_1": 2, "checkpoint_0": 1}
    assert coverage.cold_s == pytest.approx(1.0 + 1.5 + 0.5)
    assert coverage.chosen_s == pytest.approx(0.04 + 0.54 + 0.5)
    assert coverage.still_cold_s == {"rare": pytest.approx(1.0)}
    assert coverage.unknown == {"left_pad": 1}
    assert coverage.saved_share == pytest.approx(1 - 1.08 / 3.0)


class Outline(HTMLParser):
    """Tags that are open, the text of the headings, and every reference to elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.elsewhere: list[str] = []
        self.scripts = 0
        self._in_heading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_heading = tag in ("h1", "h2")
        self.scripts += tag == "script"
        self.elsewhere += [
            value or ""
            for name, value in attrs
            if name in ("src", "href") and not (value or "").startswith("#")
        ]

    def handle_data(self, data: str) -> None:
        if self._in_heading:
            self.headings.append(data)
            self._in_heading = False


def page(**changes: object) -> str:
    manifest = Manifest(
        flavor="cpu",
        runtime="gvisor",
        created="20260102T030405",
        python="3.11.7",
        catalogue_sha256="",
        checkpoints=(),
        startup_s=StartupSeconds(0.4, 0.2),
        **changes,  # type: ignore[arg-type]
    ).sealed()
    metas = {
        "checkpoint_0": CheckpointMeta("checkpoint_0", "gvisor", restore_s=0.2),
        "checkpoint_1": CheckpointMeta("checkpoint_1", "gvisor", restore_s=0.25),
    }
    return make_page(manifest, CATALOGUE, metas, cover(CATALOGUE, REQUESTS))


def test_the_page_needs_nothing_from_elsewhere() -> None:
    outline = Outline()
    outline.feed(page())
    assert outline.headings[0].startswith("Generation 20260102T030405-")
    assert outline.headings[1:] == [
        "Restores",
        "What the corpus gains",
        "What is still imported at each call",
        "What nobody has measured",
    ]
    assert outline.elsewhere == []
    assert outline.scripts == 0


def test_the_page_holds_predicted_and_measured_restores_side_by_side() -> None:
    assert "<td class=n>0.240</td><td class=n>0.250</td>" in page()


def test_what_stands_in_a_manifest_cannot_become_markup() -> None:
    assert "<script>" not in page(python_path="<script>", rootfs="<script>")


def test_the_same_generation_gives_the_same_page() -> None:
    assert page() == page()
