"""The page with the model that the package carries, on photographs: as a person would use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commands import ctsan_here
from ctsan.inference.predictor import Predictor
from web.serving import running
from web.test_page import BROWSER, becomes, browser, give

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="there is no browser here"),
]
CLIPS = Path(__file__).parents[2] / "examples/clips"

__all__ = ["browser"]  # a fixture here too


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    store = tmp_path_factory.mktemp("library")
    ctsan_here("index", CLIPS, "--store", store)
    with (
        running([], "--library", "main", "--store", store) as (address, _),
        browser.new_context(viewport={"width": 1280, "height": 800}) as context,
    ):
        context.set_default_timeout(120_000)
        opened = context.new_page()
        opened.goto(address)
        opened.wait_for_selector("html[data-ready]")
        yield opened


def test_a_clip_is_described_as_by_the_command_and_its_words_are_seen_in_it(page: Page) -> None:
    give(page, CLIPS / "coffee.mp4")
    page.wait_for_selector("#traces:not([hidden])")
    said = Predictor.load().describe(CLIPS / "coffee.mp4")
    assert page.inner_text("#caption").split() == said.caption.split()
    chips = page.locator("#concepts .chip")
    words = [concept.word for concept in said.concepts]
    in_caption = [word for word in words if word in said.caption.split()]
    expected = [*in_caption, *(word for word in words if word not in in_caption)][:5]
    assert [chip.split()[0] for chip in chips.all_inner_texts()] == expected
    chips.first.click()
    becomes(page, "document.getElementById('heat').classList.contains('on')")


def test_a_blank_is_filled_and_a_sentence_chosen(page: Page) -> None:
    page.click("#tab-questions")
    page.fill("#blank", "a ____ of food on a table")
    becomes(page, "document.querySelector('#filled')?.innerText.includes('bowl')")
    choices = page.locator("#choices input")
    for number, sentence in enumerate(("a man is driving a car", "a cup of coffee on a table")):
        choices.nth(number).fill(sentence)
    best = "document.querySelector('#choices .best input')?.value"
    becomes(page, f"{best} === 'a cup of coffee on a table'")


def test_a_sentence_finds_its_clip_and_others_like_it(page: Page) -> None:
    page.fill("#query", "a cup on a table")
    page.press("#query", "Enter")
    page.wait_for_selector("#results .open")
    assert "coffee.mp4" in page.locator("#results .result").first.inner_text()
    with page.expect_response(lambda answer: "like=" in answer.url) as answered:
        page.locator("#results .like").first.click()
    assert answered.value.json()["hits"][0]["name"] == "coffee.mp4"  # nothing is more like it
