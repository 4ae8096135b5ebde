"""The documentation as a site: it fetches nothing from elsewhere; its gallery says what the model says."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


class _Resources(HTMLParser):
    """Collects the addresses of what a browser fetches to show a page, not those that a person follows."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") in ("canonical", "prev", "next"):
            return
        for name in ("src", "href" if tag == "link" else "data-src", "poster"):
            if address := values.get(name):
                self.addresses.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
        capture_output=True,
    )
    return folder


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        parser = _Resources()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.addresses
        for address in parser.addresses:
            assert not re.match(r"(https?:)?//", address), (page.name, address)
            if not address.startswith(("data:", "#")) and page.name != "404.html":
                assert (page.parent / address.partition("?")[0].partition("#")[0]).exists(), (page, address)
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style.name


def test_the_gallery_says_what_the_model_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gallery.py", "--out", str(tmp_path)])
    runpy.run_path(str(REPOSITORY / "tools/gallery.py"), run_name="__main__")
    made = (tmp_path / "gallery.md").read_text(encoding="utf-8")
    assert made == (REPOSITORY / "docs/gallery.md").read_text(encoding="utf-8")
    names = {path.name for path in (tmp_path / "gallery").iterdir()}
    assert names == {path.name for path in (REPOSITORY / "docs/gallery").iterdir()}
