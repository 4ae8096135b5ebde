"""The page in a real browser: every feature, on real clips."""

from __future__ import annotations

import base64
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clip_making import counting, encode
from ctsan.search.indexing import index_folders
from web.conftest import Serve
from web.serving import found_in

if TYPE_CHECKING:  # the tests are skipped where it is not installed
    from playwright.sync_api import Browser, Page, Route

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no browser here")

_PATIENCE = 60_000  # milliseconds


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with playwright.sync_playwright() as started:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        with started.chromium.launch(executable_path=BROWSER, args=options) as opened:
            yield opened


@pytest.fixture
def page(browser: Browser, server: str) -> Iterator[Page]:
    """The page, freshly opened; whatever it complains of fails the test."""
    complaints: list[str] = []
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        context.set_default_timeout(_PATIENCE)
        opened = context.new_page()
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on(
            "console", lambda said: complaints.append(said.text) if "Security Policy" in said.text else None
        )
        opened.on(
            "request",
            lambda asked: (
                complaints.append(asked.url) if not asked.url.startswith((server, "blob:")) else None
            ),
        )
        opened.goto(server)
        opened.wait_for_selector("html[data-ready]")
        yield opened
    assert complaints == []


def give(page: Page, clip: Path) -> None:
    page.set_input_files("#file", clip)
    await_description(page)


def await_description(page: Page) -> None:
    """Wait until the clip is described, on whichever tab."""
    page.wait_for_selector("#description:not([hidden]):not(.partial)", state="attached")


def drop(page: Page, *files: tuple[str, str, bytes]) -> None:
    """Drop files, each with a name, a media type and a content."""
    named = [[name, media_type, base64.b64encode(content).decode()] for name, media_type, content in files]
    dropped = page.evaluate_handle(
        """(files) => {
          const data = new DataTransfer();
          for (const [name, type, content] of files) {
            const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
            data.items.add(new File([bytes], name, { type }));
          }
          return data;
        }""",
        named,
    )
    page.dispatch_event("#main", "drop", {"dataTransfer": dropped})


def becomes(page: Page, expression: str) -> None:
    """Wait for something to be true. Playwright's own way of waiting is against the page's policy."""
    end = time.monotonic() + _PATIENCE / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(50)


def test_a_video_plays_beside_its_caption(page: Page, clip: Path) -> None:
    give(page, clip)
    becomes(page, "document.getElementById('video').currentTime > 0.3")
    words = page.locator("#caption .word")
    assert words.count() == len(page.inner_text("#caption").split())
    assert page.inner_text("#said").startswith("It says: ")
    chips = page.locator("#concepts .chip small")
    confidences = chips.all_inner_texts()
    words.first.hover()
    hint = page.inner_text("#caption-hint")
    assert hint.startswith(f"“{words.first.inner_text()}” is ")
    assert f"For “{words.first.inner_text()}” the model “describe” attended to " in hint
    assert "came from" not in hint
    assert not re.search(r"\b0 %", hint)
    assert chips.all_inner_texts() != confidences  # they show the word's attention
    page.mouse.move(0, 0)
    assert chips.all_inner_texts() == confidences
    words.first.focus()  # the same by keyboard
    assert page.inner_text("#caption-hint") == hint
    assert "by which the captions were ranked" in str(page.get_attribute("#caption", "title"))
    assert page.locator("#strip img").count() > 3


def test_a_video_is_dropped(page: Page, clip: Path) -> None:
    drop(page, ("a.mp4", "", clip.read_bytes()))
    await_description(page)
    assert page.inner_text("#title") == "a.mp4"
    assert page.is_hidden("#queue")
    page.click("#back")
    assert page.is_visible("#start")
    page.go_forward()  # the clip is still there
    assert page.inner_text("#title") == "a.mp4"
    becomes(page, "document.getElementById('video').currentTime > 0")


def test_several_dropped_files_queue_up(page: Page, clip: Path) -> None:
    content = clip.read_bytes()
    drop(
        page,
        ("clips.jsonl", "", b"{}"),
        ("first.mp4", "video/mp4", content),
        ("letter.mp4", "video/mp4", b"Dear all"),
        ("second.mp4", "video/mp4", content),
    )
    await_description(page)
    assert page.inner_text("#message-text") == "Skipped 1 file that is no video or picture: clips.jsonl."
    assert page.get_attribute("#message", "role") == "status"
    assert page.inner_text("#title") == "first.mp4"
    becomes(page, "!document.getElementById('queue').innerText.match(/waiting|sending|reading/)")
    chips = page.locator("#queue .chip")
    assert [text.split("\n")[0] for text in chips.all_inner_texts()] == [
        "first.mp4",
        "letter.mp4",
        "second.mp4",
    ]
    assert chips.nth(1).inner_text().endswith("not readable")
    assert chips.nth(0).get_attribute("aria-current") == "page"
    chips.nth(2).click()
    await_description(page)
    assert page.inner_text("#title") == "second.mp4"
    assert chips.nth(2).get_attribute("aria-current") == "page"
    assert page.is_hidden("#message")


def test_a_blank_that_is_added_stands_apart(page: Page) -> None:
    page.evaluate(
        "for (const id of ['clip', 'panel-questions', 'fill']) document.getElementById(id).hidden = false"
    )
    for sentence, caret, expected in (
        ("a man drives a car", 5, "a man ____ drives a car"),
        ("a man drives a car", 6, "a man ____ drives a car"),
        ("a man drives", 12, "a man drives ____"),
        ("a man drives.", 12, "a man drives ____."),
        ("drives a car", 0, "____ drives a car"),
        ("", 0, "____"),
        ("a ____", 6, "a ____ ____"),
        ("a man drives", 8, "a man drives ____"),
        ("a man (drives)", 7, "a man (____ drives)"),
        ("a man (drives)", 13, "a man (drives ____)"),
    ):
        page.fill("#blank", sentence)
        page.locator("#blank").evaluate("(input, caret) => input.setSelectionRange(caret, caret)", caret)
        page.click("#blank-add")
        assert page.input_value("#blank") == expected, (sentence, caret)


def test_a_concept_word_lights_up_where_it_was_seen(page: Page, clip: Path) -> None:
    """Trace t looks at cell t alone and raises every word. A run of one epoch may neither look nor raise."""

    def peaked(route: Route) -> None:
        answer = route.fetch().json()
        for frame in answer["attention"]:
            for trace, rows in enumerate(frame):
                columns = len(rows[0])
                for y, row in enumerate(rows):
                    row[:] = [float(y * columns + x == trace % (len(rows) * columns)) for x in range(columns)]
        for concept in answer["concepts"]:
            concept["shares"] = [0.01 * (trace + 1) for trace in range(len(concept["shares"]))]
            concept["probe_confidence"] = None
        route.fulfill(json=answer)

    page.route("**/api/clips/*/traces", peaked)
    give(page, clip)
    page.wait_for_selector("#traces:not([hidden])")
    chip = page.locator("#concepts .chip").first
    assert "%" in chip.inner_text()
    is_lit = "document.getElementById('heat').classList.contains('on')"
    assert not page.evaluate(is_lit)
    chip.focus()
    page.keyboard.press("Enter")
    assert chip.get_attribute("aria-pressed") == "true"
    assert page.evaluate(is_lit)
    # The share of the canvas that is warm, and the place of the warmest pixel.
    warm = """(() => {
      const canvas = document.getElementById("heat");
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const red = data.filter((_, at) => at % 4 === 0);
      const share = red.filter((value) => value > 40).length / red.length;
      return { share, peak: red.indexOf(Math.max(...red)) };
    })()"""
    becomes(page, f"{warm}.share > 0.01")
    assert page.evaluate(warm)["share"] < 0.9  # warm in some places and not in others
    page.evaluate("document.getElementById('video').pause()")
    page.locator("#trace").focus()
    page.keyboard.press("Home")
    assert re.match(r"Trace 1 of (\d+), raises “", page.inner_text("#trace-name"))
    becomes(page, f"{warm}.peak < 96 * 32")  # the first cell is in the upper half of 96 x 64 pixels
    first = page.evaluate(warm)["peak"]
    page.keyboard.press("End")
    assert re.match(r"Trace (\d+) of \1, raises “", page.inner_text("#trace-name"))
    becomes(page, f"{warm}.peak !== {first}")
    page.click("#traces-off")
    assert not page.evaluate(is_lit)


def test_attention_is_shown_as_that_of_one_of_the_models(page: Page, clip: Path) -> None:
    """With the words of a description that three models said, one of which attended to little else."""
    said = {
        "caption": "a cat",
        "score": 1.5,
        "num_models": 3,
        "run": "describe",
        "words": [
            {"word": "a", "attention": [0.996, 0.004], "effects": [], "effect": 0.04},
            {
                "word": "cat",
                "attention": [0.25, 0.75],
                "effects": [{"word": "grass", "effect": 0.8}, {"word": "tree", "effect": 0.2}],
                "effect": 3.0,
            },
        ],
        "attended": ["man", "grass"],
        "concepts": [{"word": "man", "confidence": 0.5}, {"word": "grass", "confidence": 0.4}],
    }
    page.route("**/api/clips/*/description", lambda route: route.fulfill(json=said))
    give(page, clip)
    words, hint = page.locator("#caption .word"), page.locator("#caption-hint")
    words.first.hover()
    among = "the model “describe”, one of 3 that wrote this sentence,"
    effects = (
        "“a” is hardly likelier by any concept word (less than x1.1); by all together x1.0 (times as likely "
        "as without)."
    )
    assert hint.inner_text() == f"{effects} For “a” {among} attended to man 100 %."
    assert page.locator("#concepts .chip small").all_inner_texts() == ["100 %", ""]
    words.nth(1).hover()
    effects = "“cat” is likelier by grass x2.2, tree x1.2; by all together x20 (times as likely as without)."
    assert hint.inner_text() == f"{effects} For “cat” {among} attended to grass 75 %, man 25 %."


def test_no_attention_is_shown_of_models_that_have_none(page: Page, clip: Path) -> None:
    said = {"caption": "a cat", "score": 1.5, "num_models": 2, "run": None, "attended": [], "concepts": []}
    words: list[dict[str, Any]]
    words = [{"word": word, "attention": [], "effects": [], "effect": None} for word in ("a", "cat")]
    page.route("**/api/clips/*/description", lambda route: route.fulfill(json={**said, "words": words}))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    give(page, clip)
    page.wait_for_selector("#fill:not([hidden])", state="attached")
    assert page.locator("#caption .word").count() == 0
    assert page.is_hidden("#caption-hint")
    assert not [url for url in asked if url.endswith("/traces")]


def test_a_word_that_the_traces_lower_has_nothing_to_show(page: Page, clip: Path) -> None:
    words: list[str] = []

    def lowered(route: Route) -> None:
        answer = route.fetch().json()
        first, second, third, fourth = answer["concepts"]
        count = len(first["shares"])
        first["shares"] = fourth["shares"] = [-0.2] * (count - 1) + [0.1]
        raised = [-0.1] + [0.1] * (count - 2) + [0.3]
        second |= {"shares": raised, "confidence": 0.6, "probe_confidence": 0.25}
        third |= {"shares": [-0.1] * count, "confidence": 0.6, "probe_confidence": 0.25}
        words[:] = [concept["word"] for concept in answer["concepts"]]
        route.fulfill(json=answer)

    page.route("**/api/clips/*/traces", lowered)
    give(page, clip)
    page.wait_for_selector("#traces:not([hidden])")
    chips = [page.locator("#concepts .chip").filter(has_text=re.compile(rf"^{word}(\d|$)")) for word in words]
    chips[0].click()
    assert "The traces together lower the score" in page.inner_text("#trace-name")
    assert chips[0].get_attribute("aria-pressed") == "false"
    is_lit = "document.getElementById('heat').classList.contains('on')"
    assert not page.evaluate(is_lit)
    chips[1].click()
    last = page.get_attribute("#trace", "max")
    assert page.inner_text("#trace-name").endswith(f"most by trace {last}; by the probe alone 25 %")
    assert page.evaluate(is_lit)
    chips[2].click()
    assert re.fullmatch("No trace raises “.*”; the probe names it", page.inner_text("#trace-name"))
    assert not page.evaluate(is_lit)
    page.locator("#trace").focus()
    page.keyboard.press("Home")  # a trace that raises no word has no heat map either
    none = f"Trace 1 of {last}, raises no word that the traces together raise"
    assert page.inner_text("#trace-name") == none
    assert not page.evaluate(is_lit)
    page.keyboard.press("End")
    assert page.evaluate(is_lit)


def test_blanks_are_filled_while_typing(page: Page, clip: Path) -> None:
    give(page, clip)
    page.click("#tab-questions")
    page.fill("#blank", "")
    page.locator("#blank").press_sequentially("the ___ moves to the ___")
    becomes(page, "document.querySelectorAll('#filled mark').length === 2")
    assert page.locator("#fillings ul").count() == 2
    assert page.locator("#fillings ul").first.locator("li").count() == 5
    page.fill("#blank", "no blank")
    page.wait_for_selector("#filled", state="hidden")
    assert "___" in page.inner_text("#blank-hint")


def test_the_best_of_five_sentences_is_marked(page: Page, clip: Path) -> None:
    give(page, clip)
    page.click("#tab-questions")
    fields = page.locator("#choices input")
    assert fields.count() == 2  # they grow
    sentences = ["a square moves", "a heart grows", "a shape on the water", "a small star", "a leaf moves"]
    for place, sentence in enumerate(sentences):
        fields.nth(place).fill(sentence)
        assert fields.count() == min(5, max(2, place + 2))
    becomes(page, "[...document.querySelectorAll('#choices .number')].every((number) => number.textContent)")
    assert page.locator("#choices .best").count() == 1
    scores = [
        float(text.removesuffix(" best")) for text in page.locator("#choices .number").all_inner_texts()
    ]
    best = page.locator("#choices .best .number").inner_text()
    assert float(best.removesuffix(" best")) == max(scores)


def test_a_video_of_several_pieces_plays(
    browser: Browser, serve: Serve, own_library: Path, big_clip: Path
) -> None:
    index_folders([big_clip.parent], own_library, models=[])
    with serve(library=own_library) as client, browser.new_context() as context:
        context.set_default_timeout(_PATIENCE)
        page = context.new_page()
        statuses: list[int] = []
        page.on("response", lambda got: statuses.append(got.status) if "/video" in got.url else None)
        page.goto(str(client.base_url))
        page.wait_for_selector("html[data-ready]")
        page.evaluate(
            """(source) => {
              const video = Object.assign(document.createElement("video"), { muted: true, src: source });
              document.body.append(Object.assign(video, { id: "pieces" }));
              return video.play();
            }""",
            f"/api/library/{found_in(client, big_clip.name)['id']}/video",
        )
        becomes(page, "document.getElementById('pieces').ended")
        assert page.evaluate("document.getElementById('pieces').currentTime") == pytest.approx(5, abs=0.2)
        assert len(statuses) >= 4
        assert set(statuses) == {206}
        page.evaluate("document.getElementById('pieces').currentTime = 2.5")  # back into another piece
        becomes(page, "!document.getElementById('pieces').seeking")
        page.evaluate("document.getElementById('pieces').play()")
        becomes(page, "document.getElementById('pieces').currentTime > 3")


def test_a_long_video_is_told_shot_by_shot(page: Page, long_clip: Path) -> None:
    """The shots come before the sentence about all of it, and each plays to its end."""
    give(page, long_clip)
    assert page.get_attribute("#tab-shots", "aria-selected") == "true"
    assert page.is_hidden("#caption")
    page.wait_for_selector("#vtt:not([hidden])")
    assert page.locator("#tabs button").all_inner_texts() == ["Shot by shot", "The whole film", "Questions"]
    assert page.locator("#shot-list li").count() == 4
    with page.expect_download() as downloading:
        page.click("#vtt")
    track = downloading.value.path().read_text(encoding="utf-8")
    assert track.startswith("WEBVTT")
    page.locator("#shot-list button").nth(2).click()
    becomes(page, "document.getElementById('video').currentTime >= 20")
    page.wait_for_selector("#shot-list li:nth-child(3) [aria-current=true]")
    assert "shot=3" in page.url
    page.evaluate("document.getElementById('video').currentTime = 29.5")
    becomes(page, "document.getElementById('video').paused")
    assert page.evaluate("document.getElementById('video').currentTime") == pytest.approx(30, abs=0.2)
    page.go_back()
    assert "shot=" not in page.url
    page.click("#tab-description")
    assert page.is_visible("#caption")


def test_telling_shots_shows_how_far_it_is_and_can_be_stopped(page: Page, long_clip: Path) -> None:
    half = {"state": "reading", "progress": 0.5, "error": None, "shots": []}
    page.route("**/api/clips/*/shots", lambda route: route.fulfill(json=half))
    give(page, long_clip)
    page.wait_for_selector("#shots-progress-box:not([hidden])")
    assert page.locator("#shots-progress").evaluate("(bar) => bar.value") == 0.5
    assert page.is_hidden("#vtt")
    with page.expect_response("**/cancel") as answer:
        page.click("#shots-cancel")
    assert answer.value.ok
    page.unroute("**/api/clips/*/shots")
    page.wait_for_selector("#shots-progress-box", state="hidden")


def test_what_the_browser_cannot_play_is_shown_by_its_frames(page: Page, tmp_path: Path) -> None:
    give(page, encode(tmp_path / "old.avi", counting(48)))
    page.wait_for_selector("#still:not([hidden])")
    assert "/pictures/" in str(page.get_attribute("#still", "src"))
    assert page.is_hidden("#video")


def test_errors_stand_in_the_page(page: Page, tmp_path: Path) -> None:
    (tmp_path / "letter.mp4").write_text("Dear all", encoding="utf-8")
    page.set_input_files("#file", tmp_path / "letter.mp4")
    page.wait_for_selector("#message.wrong:not([hidden])")
    assert "text, not a video" in page.inner_text("#message")
    assert page.get_attribute("#message", "role") == "alert"
    assert page.is_visible("#start")
    page.click("#message-close")
    assert page.is_hidden("#message")


def test_cancelling_goes_back(page: Page, clip: Path) -> None:
    page.route("**/api/clips/*", lambda route: None)  # the server never answers how far it is
    page.set_input_files("#file", clip)
    page.wait_for_selector("#progress-box:not([hidden])")
    page.click("#cancel")
    page.wait_for_selector("#start:not([hidden])")
    assert page.inner_text("#said") == "Cancelled."
    page.unroute("**/api/clips/*")
