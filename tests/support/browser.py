"""A real browser, Debian's Chromium, and what a page says and asks for while it is open in it."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import BrowserContext, Page, sync_playwright

from support.requirements import require_part

# As root it cannot use its own sandbox; the others keep it from talking to anybody by itself.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ANSWER_S = 60  # that the browser has for anything, on a busy machine


@dataclass(slots=True)
class Heard:
    """`complaints` are errors and warnings of the console, `requested` the URLs that pages asked for."""

    complaints: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    def listen_to(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requested.append(request.url))
        page.on(
            "console",
            lambda message: (
                self.complaints.append(message.text)
                if message.type in ("error", "warning")
                else None
            ),
        )


@contextmanager
def running_browser() -> Iterator[BrowserContext]:
    """A browser with an empty profile of its own."""
    found = shutil.which("chromium")
    version = None
    if found is not None:
        asked = subprocess.run(
            [found, "--version"], capture_output=True, text=True, check=True, timeout=ANSWER_S
        )
        version = asked.stdout.split()[1]
    require_part("chromium", version, "`apt-get install chromium`")
    with (
        tempfile.TemporaryDirectory(prefix="rd-", ignore_cleanup_errors=True) as profile,
        sync_playwright() as playwright,
    ):
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=found, args=FLAGS, headless=True, timeout=ANSWER_S * 1000
        )
        context.set_default_timeout(ANSWER_S * 1000)
        try:
            yield context
        finally:
            context.close()
