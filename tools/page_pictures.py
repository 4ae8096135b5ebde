"""The pictures of README and docs that show the bundled model at work: the page, a search in it, and traces.

python tools/page_pictures.py DOCS

It asks about the clips in examples/clips and needs Chromium and the packages of '.[dev]'.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

CLIPS = Path(__file__).parents[1] / "examples/clips"
SHOWN, QUERY, SEEN = CLIPS / "rabbit.mp4", "a rabbit in the grass", "animals"  # a word of its caption
CTSAN = (sys.executable, "-m", "ctsan")
PATIENCE = 120_000  # milliseconds
WIDEST = 1400  # pixels of a picture
_GAP = 24  # pixels between two pictures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("docs", type=Path)
    docs = parser.parse_args().docs
    with tempfile.TemporaryDirectory() as folder:
        traces = Path(folder) / "traces.png"
        subprocess.run([*CTSAN, "trace", SHOWN, "-o", traces], check=True)
        save(Image.open(traces), docs / "traces.png")
        with serving(Path(folder) / "store") as address, browsing() as browser:
            save(moment(browser, address), docs / "page.png")
            save(search_and_phone(browser, address), docs / "page-search.png")


def moment(browser: Browser, address: str) -> Image.Image:
    """A moment that a search found, its caption, and where a concept word was seen."""
    with browser.new_context(viewport={"width": 1100, "height": 720}) as context:
        page = opened(context.new_page(), address)
        page.locator("#concepts .chip", has_text=SEEN).click()
        page.mouse.move(0, 0)
        return picture(page)


def search_and_phone(browser: Browser, address: str) -> Image.Image:
    """What is found for a query in the dark, and beside it a clip on a phone."""
    dark_theme: Literal["dark"] = "dark"
    with browser.new_context(viewport={"width": 900, "height": 700}, color_scheme=dark_theme) as context:
        dark = picture(searched(context.new_page(), address, "an animal in the grass"))
    with browser.new_context(viewport={"width": 390, "height": 700}, color_scheme=dark_theme) as context:
        phone = picture(opened(context.new_page(), address))
    both = Image.new("RGB", (dark.width + _GAP + phone.width, dark.height), "white")
    both.paste(dark, (0, 0))
    both.paste(phone, (dark.width + _GAP, 0))
    return both


def searched(page: Page, address: str, query: str) -> Page:
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    page.fill("#query", query)
    page.press("#query", "Enter")
    page.wait_for_selector("#found[aria-busy=false]")
    return page


def opened(page: Page, address: str) -> Page:
    """The first result of a query, described."""
    searched(page, address, QUERY).locator("#results .open").first.click()
    page.wait_for_selector("#description:not([hidden])")
    page.wait_for_selector("#traces:not([hidden])")
    return page


def picture(page: Page) -> Image.Image:
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(1500)  # until it has stopped moving
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def save(shown: Image.Image, file: Path) -> None:
    shown = shown.convert("RGB")
    shown.thumbnail((WIDEST, WIDEST), Image.Resampling.LANCZOS)
    shown.save(file, optimize=True)
    print(file)


@contextmanager
def serving(store: Path) -> Iterator[str]:
    """The address of a server with a library of the clips."""
    subprocess.run([*CTSAN, "index", CLIPS, "--store", store], check=True)
    command = [*CTSAN, "serve", "--port", "0", "--library", "main", "--store", str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().removeprefix("Open ").strip()
        finally:
            server.terminate()


@contextmanager
def browsing() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        sys.exit("There is no Chromium here. Debian, Ubuntu: apt install chromium")
    with sync_playwright() as started:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        with started.chromium.launch(executable_path=found, args=options) as browser:
            yield browser


if __name__ == "__main__":
    main()
