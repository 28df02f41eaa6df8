"""The report as a reader sees it: in a real browser, on a desk, on a phone, in the dark, on paper."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page

from readie_pipeline.report.coverage import cover
from readie_pipeline.report.page import make_page
from readie_pipeline.report.subject import Subject
from readie_wire.catalogue import Catalogue, CatalogueCheckpoint, Item
from readie_wire.manifest import CheckpointMeta, Manifest, StartupSeconds
from support.browser import Heard, running_browser

PHONE = {"width": 380, "height": 800}
DESK = {"width": 1280, "height": 800}
ODD = 'a"><img src=x onerror=alert(1)>$x_$&amp;'
LONG = "package.with.a.very.long.name." + "x" * 90
NAMES = ["numpy", "pandas", LONG, ODD]
READABLE = 4.5  # contrast that the accessibility guidelines ask of text

# The contrast of two opaque colours as computed styles give them, by the guidelines' formula.
CONTRAST = """([selector, property]) => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[0-9.]+/g).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const page = light(getComputedStyle(document.body).backgroundColor);
  const text = light(getComputedStyle(document.querySelector(selector))[property]);
  return (Math.max(page, text) + 0.05) / (Math.min(page, text) + 0.05);
}"""


def written_report(folder: Path) -> str:
    """A gVisor generation with names that try to be markup; the URL of its report."""
    items = {name: Item(0.1 + place / 3, 10.0) for place, name in enumerate([*NAMES, "rare"])}
    checkpoints = (
        CatalogueCheckpoint("checkpoint_0"),
        *(
            CatalogueCheckpoint(f"checkpoint_{n}", NAMES[:n], NAMES[:n], 40.0 * n)
            for n in range(1, len(NAMES) + 1)
        ),
    )
    catalogue = Catalogue("cpu", 0.001, items, checkpoints, {"numpy": ODD})
    manifest = Manifest(
        flavor="cpu",
        runtime="gvisor",
        created="20260102T030405",
        python="3.11.7",
        catalogue_sha256="ab" * 32,
        checkpoints=(),
        startup_s=StartupSeconds(0.4, 0.2),
        planned_alpha=0.002,
    ).sealed()
    metas = {
        one.id: CheckpointMeta(
            one.id, "gvisor", bytes_on_disk=1 << 24, restore_s=0.2 + one.size_mb / 900, gate=(ODD,)
        )
        for one in checkpoints
    }
    requests = [["numpy"], ["pandas", "numpy"], [LONG], [ODD, "rare"], ["left_pad"], []]
    covered = cover(catalogue, manifest, requests, [5, 4, 3, 2, 1, 1])
    file = folder / "report.html"
    file.write_text(make_page(Subject(manifest, catalogue, metas, covered)))
    return file.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[BrowserContext]:
    with running_browser() as context:
        yield context


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written_report(tmp_path_factory.mktemp("report"))


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def page(browser: BrowserContext, url: str, heard: Heard) -> Iterator[Page]:
    """The report, open and loaded, with an ear on it since before it was."""
    page = browser.new_page()
    heard.listen_to(page)
    page.goto(url)
    yield page
    page.close()


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_stands_on_its_own_and_fits(
    page: Page, url: str, heard: Heard, size: dict[str, int], scheme: str
) -> None:
    page.set_viewport_size({"width": size["width"], "height": size["height"]})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    figures = page.locator("figure svg")
    assert figures.count() == 3
    for place in range(figures.count()):
        box = figures.nth(place).bounding_box()
        assert box is not None
        assert box["width"] > 300
        assert box["height"] > 150
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    for selector, css in (("p", "color"), (".soft", "color"), ("a", "color"), ("svg text", "fill")):
        assert page.evaluate(CONTRAST, [selector, css]) >= READABLE, selector
    assert heard.complaints == []
    assert heard.requested == [url]


def test_names_that_try_to_be_markup_are_text(page: Page, heard: Heard) -> None:
    assert page.locator("img").count() == 0
    assert page.get_by_text(ODD, exact=True).count() > 0
    assert heard.complaints == []


def test_a_click_on_a_head_orders_the_table_and_another_one_turns_it(page: Page) -> None:
    table = page.locator("section[aria-labelledby=savings] table")
    head = table.locator("thead th").nth(2)
    column = table.locator("tbody tr td:nth-child(3)")
    assert table.locator("th[aria-sort]").inner_text() == "Saved, s"
    head.get_by_role("button").click()
    down = column.all_inner_texts()
    assert head.get_attribute("aria-sort") == "descending"
    assert down == sorted(down, key=int, reverse=True)
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert column.all_inner_texts() == sorted(down, key=int)


def test_the_page_can_be_heard(page: Page) -> None:
    """What a screen reader needs: a language, one main heading, words for figures and tables."""
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("h1").count() == 1
    assert page.get_by_role("img").count() == page.locator("svg").count() == 3
    for drawing in page.get_by_role("img").all():
        assert len(drawing.get_attribute("aria-label") or "") > 20
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("thead th:not([scope=col])").count() == 0
    identifiers = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(identifiers) == len(set(identifiers))


def test_on_paper_everything_is_dark_on_white(page: Page) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(CONTRAST, ["svg text", "fill"]) >= READABLE
    assert page.pdf().startswith(b"%PDF")
