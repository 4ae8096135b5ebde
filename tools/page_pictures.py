"""The pictures of README that show the embedded model at work: the page, a search in it, and the traces.

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

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

CLIPS = Path(__file__).parents[1] / "examples/clips"
SHOWN, SEEN = CLIPS / "rabbit.mp4", "animals"  # a concept word of it that its caption holds
CTSAN = (sys.executable, "-m", "ctsan")
PATIENCE = 120_000  # milliseconds
WIDEST = 1400  # pixels of a picture
SMALLER = 0.75  # is what stands beside something else


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
            save(whole_page(browser, address), docs / "page.png")
            save(search_and_phone(browser, address), docs / "page-search.png")


def whole_page(browser: Browser, address: str) -> Image.Image:
    """A clip, what is said of it, where a concept word was seen, and a blank that is filled."""
    with browser.new_context(viewport={"width": 1280, "height": 880}) as context:
        page = opened(context.new_page(), address)
        page.locator("#concepts .chip", has_text=SEEN).click()
        said = page.inner_text("#caption")
        page.fill("#blank", said.replace(SEEN, "____", 1))
        page.wait_for_selector("#fillings li")
        return picture(page)


def search_and_phone(browser: Browser, address: str) -> Image.Image:
    """What is found for a query in the dark, and beside it a clip on a phone."""
    with browser.new_context(viewport={"width": 1280, "height": 880}, color_scheme="dark") as context:
        page = opened(context.new_page(), address)
        page.fill("#query", "a cup on a table")
        page.keyboard.press("Enter")
        page.wait_for_selector("#results img")
        dark = scaled(picture(page), SMALLER)
    with browser.new_context(viewport={"width": 390, "height": 880}) as context:
        phone = scaled(picture(opened(context.new_page(), address)), SMALLER)
    both = Image.new("RGB", (dark.width + 17 + phone.width, dark.height), "white")
    both.paste(dark, (0, 0))
    both.paste(phone, (dark.width + 17, 0))
    return both


def opened(page: Page, address: str) -> Page:
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    page.set_input_files("#file", SHOWN)
    page.wait_for_selector("#description:not([hidden])")
    page.wait_for_selector("#traces:not([hidden])")
    return page


def picture(page: Page) -> Image.Image:
    page.wait_for_timeout(1500)  # until it has stopped moving
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def scaled(shown: Image.Image, scale: float) -> Image.Image:
    return shown.resize((round(scale * shown.width), round(scale * shown.height)), Image.Resampling.LANCZOS)


def save(shown: Image.Image, file: Path) -> None:
    """With few enough colours to be small, and dots of them where there were more."""
    shown = scaled(shown.convert("RGB"), min(1, WIDEST / shown.width))
    palette = shown.quantize(256)
    shown.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(file, optimize=True)
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
