from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from clip_making import counting, encode
from ctsan.tasks.task import Example, ShownChoice, ShownClip, ShownConcept
from ctsan.training.examples_page import write_examples_page


def example(clip: str, path: Path, *, score: float, caption: str = "a dog runs", people: int = 5) -> Example:
    concepts = (ShownConcept("dog", 0.93, True), ShownConcept("<cat>", 0.21, False))
    references = tuple(f"sentence {number} & more" for number in range(people))
    return Example(clip, path, caption, references, concepts, score)


class Outline(HTMLParser):
    """Tags in balance, and the attributes of each."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(tmp_path_factory.mktemp("clips") / "clip.mp4", counting(48, size=(48, 96)))


def write(folder: Path, *examples: Example) -> str:
    write_examples_page(folder / "examples.html", examples, title="Examples of <mine>", metric="CIDEr")
    return (folder / "examples.html").read_text(encoding="utf-8")


def test_clips_are_evenly_spaced_from_the_best_to_the_worst(tmp_path: Path) -> None:
    many = [example(f"clip {n}", tmp_path / "none", score=float(n * 7 % 34)) for n in range(34)]
    page = write(tmp_path, *many)
    assert re.findall(r"CIDEr <b>(\d+)\.00", page) == [str(score) for score in range(33, -1, -3)]
    assert "12 of 34 validation clips" in page
    assert "sorted by their own CIDEr" in page
    few = write(tmp_path, *many[:3])
    assert few.count("<article>") == 3
    assert "All 3 validation clips" in few


def test_four_real_frames_with_words_for_those_who_do_not_see_them(tmp_path: Path, clip: Path) -> None:
    outline = Outline(write(tmp_path, example("clip", clip, score=1.0)))
    images = [attributes for tag, attributes in outline.seen if tag == "img"]
    assert [image["alt"] for image in images] == [
        f"Frame at {n:.1f} seconds" for n in (0.25, 0.75, 1.25, 1.75)
    ]
    pictures = [b64decode((image["src"] or "").removeprefix("data:image/jpeg;base64,")) for image in images]
    assert all(picture.startswith(b"\xff\xd8\xff") and picture.endswith(b"\xff\xd9") for picture in pictures)
    assert len(set(pictures)) == 4
    assert all(int(image["width"] or 0) == 2 * int(image["height"] or 0) for image in images)


def test_nothing_is_loaded_from_elsewhere_and_the_same_examples_give_the_same_bytes(
    tmp_path: Path, clip: Path
) -> None:
    page = write(tmp_path, example("clip", clip, score=1.0))
    assert write(tmp_path, example("clip", clip, score=1.0)) == page
    outline = Outline(page)
    assert not {"script", "link", "iframe"} & {tag for tag, _ in outline.seen}
    assert all((attributes.get("src") or "data:").startswith("data:") for _, attributes in outline.seen)
    assert "http" not in page
    assert "url(" not in page
    assert "prefers-color-scheme: dark" in page


def test_texts_are_shown_as_they_are_and_right_words_are_marked(tmp_path: Path, clip: Path) -> None:
    page = write(tmp_path, example("a<b>.mp4", clip, score=0.5, caption="<script>x</script>"))
    Outline(page)
    assert "<h1>Examples of &lt;mine&gt;</h1>" in page
    assert '<p class="says">&lt;script&gt;x&lt;/script&gt;</p>' in page
    assert '<li class="right">✓ dog <small>0.93</small></li>' in page
    assert "<li>&lt;cat&gt; <small>0.21</small></li>" in page
    assert page.count("&amp; more</li>") == 3
    assert "and 2 more" in page


def test_a_clip_that_is_gone_says_so_in_its_place(tmp_path: Path, clip: Path) -> None:
    gone = tmp_path / "gone.mp4"
    page = write(tmp_path, example("gone", gone, score=2.0), example("clip", clip, score=1.0))
    assert f"No pictures: {gone}: there is no such file. Check the path." in page
    assert page.count("<img ") == 4
    assert page.count("<article>") == 2


def test_names_that_are_no_text_do_not_stop_it(tmp_path: Path, clip: Path) -> None:
    page = write(tmp_path, example("clip\udcff.mp4", clip, score=1.0))
    assert "clip?.mp4" in page


@pytest.mark.parametrize("chosen", [1, 3])
def test_a_choice_shows_all_sentences_the_right_one_in_bold_and_the_chosen_one_ticked(
    tmp_path: Path, clip: Path, chosen: int
) -> None:
    choices = tuple(ShownChoice(f"no. {n} <x>", is_right=n == 3, is_chosen=n == chosen) for n in range(5))
    page = write(tmp_path, replace(example("clip", clip, score=float(chosen == 3)), choices=choices))
    Outline(page)
    rows = re.findall(r'<li class="(.*?)"><span class="box">(.*?)</span>(.*?)</li>', page)
    assert [kind for kind, _, _ in rows] == [
        " ".join(name for name, place in (("right", 3), ("chosen", chosen)) if place == n) for n in range(5)
    ]
    assert [tick for _, tick, _ in rows] == ["✓" if n == chosen else "" for n in range(5)]
    assert [text.startswith("<strong>") for _, _, text in rows] == [n == 3 for n in range(5)]
    assert [re.sub("</?(strong|span)>", "", text) for _, _, text in rows] == [
        f"no. {n} &lt;x&gt;" for n in range(5)
    ]
    assert "The right sentence is in bold" in page
    assert "What people said" not in page  # it is among the sentences


def ranking(right: int, clips: Sequence[Path], **others: Any) -> Example:
    """Of 40 clips; `right` is the rank of the right one, which is the last of them if that is above five."""
    ranks = [1, 2, 3, 4, 5] if right <= 5 else [1, 2, 3, 4, right]
    ranked = [ShownClip(n, f"clip {n}", path, n == right) for n, path in zip(ranks, clips, strict=True)]
    return replace(
        example(f"clip {right}", clips[0], score=1 / right, caption="a <dog> runs"),
        ranked=tuple(ranked),
        num_ranked=40,
        **others,
    )


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("five")
    return [encode(folder / f"{n}.mp4", counting(4 + 8 * n, size=(48, 96))) for n in range(5)]


@pytest.mark.parametrize(
    ("right", "buckets", "labels"),
    [
        (1, ["right", "", "", "", ""], ["✓ 1", "2", "3", "4", "5"]),
        (5, ["", "", "", "", "right"], ["1", "2", "3", "4", "✓ 5"]),
        (17, ["", "", "", "", "missed"], ["1", "2", "3", "4", "✗ 17 of 40"]),
    ],
)
def test_a_ranking_shows_the_first_clips_and_frames_the_right_one(
    tmp_path: Path, five: list[Path], right: int, buckets: list[str], labels: list[str]
) -> None:
    page = write(tmp_path, ranking(right, five))
    outline = Outline(page)
    shown = page[page.index('<ol class="ranked">') : page.index("</ol>")]
    assert re.findall(r'<li class="(.*?)" title="(.*?)">', shown) == [
        (kind, f"clip {rank}") for kind, rank in zip(buckets, [1, 2, 3, 4, max(right, 5)], strict=True)
    ]
    assert re.findall(r"<span>(.*?)</span></li>", shown) == labels
    images = [attributes for tag, attributes in outline.seen if tag == "img"]
    assert [image["alt"] for image in images] == [f"Rank {n}: clip {n}" for n in (1, 2, 3, 4, max(right, 5))]
    assert len({image["src"] for image in images}) == 5  # each clip's own picture
    assert page.index("a &lt;dog&gt; runs") < page.index('<ol class="ranked">')
    assert ".ranked .right { color: var(--right); }" in page
    assert ".ranked .missed { color: var(--wrong); }" in page
    assert "the right one framed in green" in page


def test_a_ranked_clip_that_is_gone_says_so_in_its_place(tmp_path: Path, five: list[Path]) -> None:
    gone = tmp_path / "gone.mp4"
    page = write(tmp_path, ranking(2, [*five[:3], gone, five[4]]))
    Outline(page)
    assert f"No picture: {gone}: there is no such file." in page
    assert page.count("<img ") == 4
    assert re.findall(r"<span>(\S.?.?)</span></li>", page) == ["1", "✓ 2", "3", "4", "5"]
