"""Take the picture of a report that the docs show: ``python docs/picture.py REPORT.html OUT.png``.

It is the page up to the end of its first section, as chromium shows it on a desk, in a palette of
few colours: pictures stay in the repository for ever.
"""

import argparse
import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH = 1040  # pixels
MARGIN = 16  # pixels below the section
COLOURS = 128
# As root chromium cannot use its own sandbox; the others keep it from talking to anybody.
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    found = shutil.which("chromium")
    if found is None:
        raise SystemExit(
            "there is no chromium on this machine; get it with apt-get install chromium"
        )
    taken = picture(found, options.report.resolve().as_uri())
    image = (
        Image.open(io.BytesIO(taken))
        .convert("RGB")
        .quantize(COLOURS, method=Image.Quantize.FASTOCTREE)
    )
    image.save(options.out, optimize=True)
    print(f"{options.out}: {options.out.stat().st_size / 1000:.0f} kB")


def picture(browser: str, url: str) -> bytes:
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=browser,
            args=FLAGS,
            viewport={"width": WIDTH, "height": WIDTH},
            color_scheme="light",
        )
        page = context.new_page()
        page.goto(url)
        end = page.evaluate("document.querySelector('section').getBoundingClientRect().bottom")
        taken = page.screenshot(
            full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": end + MARGIN}
        )
        context.close()
    return taken


if __name__ == "__main__":
    main()
