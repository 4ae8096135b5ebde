"""Every state of the page has an address: it can be left, reloaded, linked to, and read by everyone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs, urlsplit

import pytest

from clip_making import counting, encode
from ctsan.inference.predictor import Predictor
from ctsan.search.indexing import index_folders
from ctsan.web.app import create_app
from ctsan.web.limits import Limits
from web.conftest import Serve
from web.serving import load_predictor, served
from web.test_page import BROWSER, await_description, becomes, browser, give, page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

axe_playwright = pytest.importorskip("axe_playwright_python.sync_playwright")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no browser here")

__all__ = ["browser", "page"]  # fixtures here too


def search(page: Page, query: str) -> None:
    page.fill("#query", query)
    page.press("#query", "Enter")
    page.wait_for_selector("#found[aria-busy=false]")


def open_shot(page: Page, name: str, start: str) -> None:
    """Open the result of a file that starts at the given time."""
    page.locator(f"#results .result:has-text('{name}'):has-text('{start} –') .open").click()
    await_description(page)


def names_of_results(page: Page) -> list[str]:
    names: list[str] = page.locator("#results .open").evaluate_all(
        "(links) => links.map((link) => link.dataset.moment)"
    )
    return names


def test_a_search_and_its_filters_have_addresses(page: Page) -> None:
    search(page, "a blue square moves")
    everything = names_of_results(page)
    assert len(everything) == 12
    assert page.title() == "“a blue square moves” · ctsan"
    becomes(page, "document.querySelector('#results img').naturalWidth > 0")
    chip = page.locator("#filters .chip").first
    word = chip.evaluate("(chip) => chip.firstChild.textContent")
    chip.click()
    becomes(page, f"document.querySelector('#filters .chip').innerText.startsWith('only {word}')")
    assert parse_qs(urlsplit(page.url).query) == {"q": ["a blue square moves"], "only": [word]}
    narrowed = names_of_results(page)
    page.locator("#filters .chip").first.click()
    becomes(page, f"document.querySelector('#filters .chip').innerText.startsWith('no {word}')")
    assert parse_qs(urlsplit(page.url).query) == {"q": ["a blue square moves"], "no": [word]}
    assert not set(narrowed) & set(names_of_results(page))
    left = page.inner_text("#filters .chip small")
    assert page.inner_text("#found-count").startswith(f"{left} of ")  # of shots without the word, not with it
    page.go_back()
    becomes(page, f"document.querySelector('#filters .chip').innerText.startsWith('only {word}')")
    assert names_of_results(page) == narrowed
    page.reload()
    page.wait_for_selector("#results .open")
    assert names_of_results(page) == narrowed
    assert page.input_value("#query") == "a blue square moves"
    page.go_back()
    becomes(page, "document.querySelectorAll('#filters [aria-pressed=true]').length === 0")
    becomes(page, "document.querySelectorAll('#results .open').length === 12")
    assert names_of_results(page) == everything
    page.go_back()
    page.wait_for_selector("#start:not([hidden])")
    assert page.title() == "ctsan"
    assert page.input_value("#query") == ""


def test_a_moment_of_a_film_opens_as_that_moment(page: Page, browser: Browser, long_clip: Path) -> None:
    search(page, "a square")
    page.click("#more")
    becomes(page, "document.querySelectorAll('#results .open').length > 12")
    open_shot(page, long_clip.name, "0:20")
    assert page.inner_text("#title") == long_clip.name
    assert page.inner_text("#range") == "0:20 – 0:30"
    assert page.inner_text("#place") == long_clip.parent.name
    assert page.title() == f"{long_clip.name} · 0:20 – 0:30 · ctsan"
    assert page.evaluate("document.activeElement.id") == "title"
    assert page.get_attribute("#tab-description", "aria-selected") == "true"
    becomes(page, "document.getElementById('video').currentTime >= 20")
    page.evaluate("document.getElementById('video').currentTime = 29.6")
    becomes(page, "document.getElementById('video').paused")  # it plays to its end
    assert page.evaluate("document.getElementById('video').currentTime") == pytest.approx(30, abs=0.2)
    with browser.new_context() as context:  # a link that was sent
        linked = context.new_page()
        linked.goto(page.url)
        await_description(linked)
        assert linked.inner_text("#caption") == page.inner_text("#caption")
        assert linked.inner_text("#range") == "0:20 – 0:30"
    page.click("#tab-shots")
    shots = page.locator("#shot-list a")
    assert shots.count() == 4
    assert shots.nth(2).get_attribute("aria-current") == "true"
    with page.expect_download() as download:
        page.click("#vtt")
    track = Path(download.value.path()).read_text(encoding="utf-8")
    assert track.startswith("WEBVTT")
    assert track.count("-->") == 4
    assert "00:00:20.000 --> 00:00:30.000" in track
    shots.nth(3).click()
    becomes(page, "document.getElementById('range').textContent.startsWith('0:30 –')")
    page.reload()
    await_description(page)
    assert page.inner_text("#range").startswith("0:30 –")
    assert page.get_attribute("#tab-shots", "aria-selected") == "true"
    page.go_back()
    becomes(page, "document.getElementById('range').textContent === '0:20 – 0:30'")
    page.click("#back")
    becomes(page, "document.querySelectorAll('#results .open').length > 12")
    assert page.input_value("#query") == "a square"


def test_back_returns_to_the_card_that_was_opened(page: Page) -> None:
    search(page, "a square")
    third = page.locator("#results .open").nth(2)
    moment = third.get_attribute("data-moment")
    third.click()
    await_description(page)
    assert page.inner_text("#back") == "Results for “a square”"
    page.click("#back")
    assert page.evaluate("document.activeElement.dataset.moment") == moment
    page.locator("#results .like").nth(2).click()
    becomes(
        page, "document.getElementById('found-title').textContent.startsWith('Results for moments like ')"
    )
    assert parse_qs(urlsplit(page.url).query) == {"like": [moment]}
    becomes(page, f"document.querySelector('#results .open')?.dataset.moment === '{moment}'")


def test_what_is_like_a_clip_is_found(page: Page, clip: Path) -> None:
    give(page, clip)
    page.click("#like")
    page.wait_for_selector("#results .open")
    assert page.inner_text("#found-title") == f"Results for moments like {clip.name}"
    assert clip.name in page.locator("#results .result").first.inner_text()
    page.go_back()
    assert page.inner_text("#title") == clip.name


def test_an_upload_is_there_after_a_reload_until_the_server_forgets_it(
    page: Page, server: str, clip: Path
) -> None:
    give(page, clip)
    said = page.inner_text("#caption")
    page.click("#tab-questions")
    page.reload()
    await_description(page)
    assert page.get_attribute("#tab-questions", "aria-selected") == "true"
    page.click("#tab-description")
    assert page.inner_text("#caption") == said
    assert page.inner_text("#title") == clip.name
    assert "deleted once it was read" in page.inner_text("#frames-note")
    assert "/pictures/" in str(page.get_attribute("#still", "src"))
    clip_id = parse_qs(urlsplit(page.url).query)["clip"][0]
    assert page.request.delete(f"{server}/api/clips/{clip_id}").status == 204
    page.reload()
    page.wait_for_selector("#gone:not([hidden])")
    assert page.inner_text("#gone-title") == "This clip is no longer here"
    assert "forgotten after an hour" in page.inner_text("#gone-text")
    assert page.is_hidden("#message")  # one message
    page.click("#gone-link")
    assert page.is_visible("#start")


def test_nothing_found_says_so(page: Page) -> None:
    search(page, "a blue square moves")
    word = page.locator("#filters .chip").first.evaluate("(chip) => chip.firstChild.textContent")
    page.goto(f"{page.url}&only={word}&no={word}")
    becomes(page, "document.getElementById('found-title').textContent.startsWith('Nothing matches')")
    assert page.inner_text("#found-note").endswith("Take back a filter to see more.")
    assert page.locator("#results .open").count() == 0
    assert page.inner_text("#said").startswith("Nothing matches “a blue square moves”")

    def unlike(route: Route) -> None:
        answer: dict[str, Any] = route.fetch().json()
        route.fulfill(json=answer | {"has_match": False, "match_accuracy": 0.83})

    page.route("**/api/search?*", unlike)
    search(page, "a heart grows")
    becomes(page, "document.getElementById('found-title').textContent === 'Nothing matches “a heart grows”'")
    assert page.inner_text("#closest") == "The closest moments"
    assert "with 83 of 100 sentences" in page.inner_text("#found-note")
    page.unroute("**/api/search?*")


def test_a_negation_points_to_the_filter(page: Page) -> None:
    search(page, "a square without a circle")
    becomes(page, "document.getElementById('found-note').textContent.includes('A sentence excludes nothing')")


def test_a_misspelt_query_says_what_was_searched_for(page: Page) -> None:
    search(page, "a grean leaf")
    becomes(page, "!document.getElementById('corrected').hidden")
    assert page.inner_text("#corrected") == "Searched for: a green leaf"
    assert "Searched for: a green leaf" in page.inner_text("#said")
    assert page.input_value("#query") == "a grean leaf"
    search(page, "a green leaf")
    becomes(page, "document.getElementById('corrected').hidden")
    search(page, "zyx qwv")
    becomes(page, "document.getElementById('found-title').textContent.startsWith('Nothing found')")
    assert "zyx" in page.inner_text("#found-note")


def test_keys_that_people_know(page: Page, long_clip: Path) -> None:
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "query"
    search(page, "a square / a heart")  # in a field they are letters
    assert page.input_value("#query") == "a square / a heart"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.is_visible("#keys")
    page.keyboard.press("Escape")
    page.wait_for_selector("#keys", state="hidden")
    becomes(page, "document.activeElement === document.body")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    focused = "[...document.querySelectorAll('#results .open')].indexOf(document.activeElement)"
    columns = page.evaluate("getComputedStyle(document.getElementById('results')).gridTemplateColumns")
    assert page.evaluate(focused) == 1 + len(columns.split())
    page.keyboard.press("Enter")
    await_description(page)
    page.keyboard.press("Escape")
    page.wait_for_selector("#found:not([hidden])")
    give(page, long_clip)
    page.wait_for_selector("#vtt:not([hidden])")
    becomes(page, "!document.getElementById('video').paused")
    page.keyboard.press("Space")
    assert page.evaluate("document.getElementById('video').paused")
    page.evaluate("document.getElementById('video').currentTime = 0")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.getElementById('video').currentTime") == 1
    page.keyboard.press("ArrowDown")
    becomes(page, "document.getElementById('video').currentTime >= 10")
    page.keyboard.press("m")
    assert page.get_attribute("#sound", "aria-pressed") == "true"
    page.locator("#tab-shots").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#tab-description", "aria-selected") == "true"
    assert page.evaluate("document.activeElement.id") == "tab-description"


@pytest.fixture(scope="module")
def odd_library(
    models: list[Path], tmp_path_factory: pytest.TempPathFactory, clip: Path
) -> tuple[Path, Path]:
    """A library with a file that browsers cannot play, one that nobody can, and its folder of videos."""
    folder = tmp_path_factory.mktemp("odd")
    videos = folder / "holidays"
    videos.mkdir()
    encode(videos / "old.avi", counting(48))
    (videos / "letter.mp4").write_text("Dear all", encoding="utf-8")
    (videos / "first.mp4").write_bytes(clip.read_bytes())
    encode(videos / "leaving.mp4", counting(30))
    index_folders([videos], folder / "store" / "odd", models=models)
    return folder / "store" / "odd", videos


@pytest.fixture(scope="module")
def odd_server(models: list[Path], odd_library: tuple[Path, Path]) -> Iterator[str]:
    limits = Limits(workers=1)
    app = create_app(load_predictor(models[:3]), limits=limits, library=odd_library[0])
    with served(app, limits) as client:
        yield str(client.base_url).rstrip("/")


@pytest.fixture
def odd_page(browser: Browser, odd_server: str) -> Iterator[Page]:
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        context.set_default_timeout(60_000)
        opened = context.new_page()
        opened.goto(odd_server)
        opened.wait_for_selector("#recent-list .open")
        yield opened


def test_the_start_page_shows_the_library_and_what_was_skipped(odd_page: Page) -> None:
    names = odd_page.locator("#recent-list .file").all_inner_texts()
    assert sorted(names) == [f"{name} · holidays" for name in ("first.mp4", "leaving.mp4", "old.avi")]
    assert odd_page.inner_text("#library-size").startswith("3 files, 3 shots in “odd”")
    assert odd_page.inner_text("#unread-title") == "1 file could not be read"
    odd_page.click("#unread-title")
    assert "letter.mp4 this is text, not a video" in odd_page.inner_text("#unread-list").lower()
    tiles = odd_page.locator("#recent-list .tile")
    for number in range(tiles.count()):
        tiles.nth(number).locator("img").scroll_into_view_if_needed()
        becomes(odd_page, f"document.querySelectorAll('.tile')[{number}].classList.contains('loaded')")
    assert odd_page.locator(".tile.broken").count() == 0
    for link in odd_page.locator("#search-list a").all():  # each has answers here
        query = parse_qs(urlsplit(str(link.get_attribute("href"))).query)["q"][0]
        found = odd_page.request.get(f"{odd_page.url}api/search", params={"query": query}).json()
        assert found["has_match"], query


def test_a_file_that_browsers_cannot_play_moves_by_its_frames(odd_page: Page) -> None:
    old = odd_page.locator("#recent-list .result:has-text('old.avi')")
    old.locator(".open").hover()
    becomes(odd_page, "document.querySelector('.tile .frames.on') !== null")
    assert odd_page.evaluate("document.querySelector('.tile .frames').naturalWidth") == 6 * 320
    assert odd_page.locator("#recent-list video").count() == 0
    old.locator(".open").click()
    await_description(odd_page)
    assert odd_page.is_hidden("#video")
    becomes(odd_page, "/pictures\\/[1-9]/.test(document.getElementById('still').src)")  # it plays
    assert "cannot play" in odd_page.inner_text("#frames-note")


def test_a_moment_whose_file_is_gone_gets_one_honest_message(
    odd_page: Page, odd_library: tuple[Path, Path]
) -> None:
    library, videos = odd_library
    link = odd_page.locator("#recent-list .result:has-text('leaving.mp4') .open").get_attribute("href")
    (videos / "leaving.mp4").unlink()
    index_folders([videos], library, models=[])
    odd_page.goto(f"{urlsplit(odd_page.url)._replace(path='', query='').geturl()}{link}")
    odd_page.wait_for_selector("#gone:not([hidden])")
    assert odd_page.inner_text("#gone-title") == "This moment is no longer here"
    assert odd_page.text_content("#message-text") == ""
    odd_page.goto(f"{urlsplit(odd_page.url)._replace(path='', query='').geturl()}/?moment=none")
    odd_page.wait_for_selector("#gone:not([hidden])")


def test_without_a_library_there_are_examples(browser: Browser, serve: Serve, asked: Predictor) -> None:
    with serve() as client, browser.new_context() as context:
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.goto(str(client.base_url))
        page.wait_for_selector("#recent-list .open")
        assert page.inner_text("#recent-title") == "Or try one of these"
        assert page.locator("#query").is_hidden()
        page.locator("#recent-list .result:has-text('coffee.mp4') .open").click()
        await_description(page)
        file = Path(__file__).parents[2] / "examples/clips/coffee.mp4"
        assert page.inner_text("#caption").split() == asked.describe(file).caption.split()
        assert page.locator("#tabs button").all_inner_texts() == ["Description", "Questions"]
        page.reload()
        await_description(page)


def test_who_prefers_less_motion_gets_none(browser: Browser, server: str) -> None:
    with browser.new_context(reduced_motion="reduce") as context:
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.goto(f"{server}/?q=a+square")
        page.locator("#results .open").first.hover()
        page.wait_for_timeout(300)
        assert page.locator("#results video").count() == 0
        page.locator("#results .open").first.click()
        await_description(page)
        assert page.evaluate("document.getElementById('video').paused")
        animated = "document.getAnimations().filter((animation) => animation.playState === 'running').length"
        assert page.evaluate(animated) == 0


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1600, "light")])
def test_everyone_can_read_it_on_every_screen(
    browser: Browser, server: str, long_clip: Path, scheme: Literal["light", "dark"], width: int
) -> None:
    """No violation of the accessibility rules of axe-core, no scrolling sideways, and a header that stays."""
    axe = axe_playwright.Axe()
    with browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme) as context:
        context.set_default_timeout(60_000)
        page = context.new_page()
        heads = set()

        def check(state: str) -> None:
            page.wait_for_timeout(450)  # for transitions of colours
            violations = axe.run(page).response["violations"]
            serious = [each for each in violations if each["impact"] in ("serious", "critical")]
            found = [(each["id"], node["target"]) for each in serious for node in each["nodes"]]
            assert found == [], state
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), state
            head = "['.brand', '#query', '#another'].map((each) => document.querySelector(each)"
            heads.add(json.dumps(page.evaluate(f"{head}.getBoundingClientRect().toJSON())")))

        page.goto(server)
        page.wait_for_selector("#recent-list .open")
        check("start")
        search(page, "a square")
        check("results")
        filters = page.locator("#filters")
        if width == 390:  # one row that scrolls, and a field of the full width
            assert filters.evaluate("(row) => row.scrollWidth > row.clientWidth && row.clientHeight < 60")
            assert page.locator("#query").evaluate("(field) => field.clientWidth") > 330
        page.click("#more")
        becomes(page, "document.querySelectorAll('#results .open').length > 12")
        open_shot(page, long_clip.name, "0:20")
        page.wait_for_selector("#traces:not([hidden])")
        page.evaluate("scrollTo(0, 0)")
        check("moment")
        page.click("#tab-shots")
        check("film")
        page.click("#tab-questions")
        becomes(page, "document.querySelectorAll('#fillings li').length > 0")
        check("questions")
        page.evaluate("document.getElementById('keys').showModal()")
        check("keys")
        page.evaluate("document.getElementById('keys').close()")
        page.goto(f"{server}/?clip=forgotten")
        page.wait_for_selector("#gone:not([hidden])")
        check("gone")
        assert len(heads) == 1, heads


def test_a_link_is_valid_on_another_start(serve: Serve, library: Path) -> None:
    with serve(library=library) as client:
        hits = client.get("/api/search", params={"query": "a square", "n": 100}).json()["hits"]
        thumbnail = client.get(f"/api/library/{hits[0]['id']}/thumbnail")
    with serve(library=library) as client:
        for hit in hits:
            found = client.get(f"/api/library/{hit['id']}")
            assert found.status_code == 200, hit
            assert {**found.json(), "score": hit["score"], "matched": hit["matched"]} == hit
        again = client.get(
            f"/api/library/{hits[0]['id']}/thumbnail", headers={"If-None-Match": thumbnail.headers["etag"]}
        )
        assert again.status_code == 304
        assert re.fullmatch(r"private, max-age=\d+", again.headers["cache-control"])
        for unknown in ("none", hits[0]["id"][:-2], hits[0]["id"][:-2] + "AA", "A" * 38, "ä"):
            answer = client.get(f"/api/library/{unknown}")
            assert answer.status_code == 404, unknown
            assert "search again" in answer.json()["error"]["message"].lower()
