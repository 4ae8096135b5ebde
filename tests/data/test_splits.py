from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import pytest

from ctsan.data.corpus import Clip
from ctsan.data.reading import read_corpus
from ctsan.data.splits import leaks, seeded_split
from data.conftest import Write


def clips(*sizes: int) -> list[Clip]:
    """Clips of several sources, `sizes[n]` of the n-th."""
    return [
        Clip(id=f"{n}-{m}.mp4", path=Path(f"{n}-{m}.mp4"), captions=("a dog",), source=f"source {n}")
        for n, size in enumerate(sizes)
        for m in range(size)
    ]


def sides(split: tuple[Clip, ...]) -> dict[str, str | None]:
    return {clip.id: clip.split for clip in split}


def test_the_shares_are_eighty_ten_ten() -> None:
    assert Counter(clip.split for clip in seeded_split(clips(*[1] * 1000), seed=0)) == {
        "train": 800,
        "val": 100,
        "test": 100,
    }


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (1, 1, 100), (1, 60, 60), (50, 50, 50), (9, 1, 4, 4, 4, 7, 7), (3,) * 40]
)
def test_no_source_is_on_two_sides_and_no_side_is_empty(sizes: tuple[int, ...], seed: int) -> None:
    split = seeded_split(clips(*sizes), seed=seed)
    by_source: defaultdict[str, set[str | None]] = defaultdict(set)
    for clip in split:
        by_source[clip.source].add(clip.split)
    assert all(len(splits) == 1 for splits in by_source.values())
    assert {clip.split for clip in split} == {"train", "val", "test"}
    assert leaks(split) == []


def test_the_order_of_the_clips_does_not_matter_and_the_seed_does() -> None:
    ordered = clips(*[2] * 100)
    shuffled = Random(3).sample(ordered, len(ordered))
    assert sides(seeded_split(ordered, seed=5)) == sides(seeded_split(shuffled, seed=5))
    assert sides(seeded_split(ordered, seed=5)) != sides(seeded_split(ordered, seed=6))


def test_the_split_of_a_seed_is_fixed_for_ever() -> None:
    held_out = {
        clip.id: clip.split for clip in seeded_split(clips(*[1] * 20), seed=0) if clip.split != "train"
    }
    assert held_out == {"2-0.mp4": "val", "6-0.mp4": "test", "10-0.mp4": "test", "16-0.mp4": "val"}


@pytest.mark.parametrize("sizes", [(4,), (4, 4)])
def test_fewer_than_three_sources_are_all_train(sizes: tuple[int, ...]) -> None:
    assert {clip.split for clip in seeded_split(clips(*sizes), seed=0)} == {"train"}


def test_reading_makes_a_split_only_where_there_are_captions_and_no_splits(write: Write) -> None:
    names = [f"{n}.mp4" for n in range(10)]
    captioned = read_corpus(write({"clips.jsonl": [{"clip": name, "captions": ["a dog"]} for name in names]}))
    assert Counter(clip.split for clip in captioned) == {"train": 8, "val": 1, "test": 1}
    assert captioned.notes == ("The corpus has no splits; they are generated from seed 0.",)
    bare = read_corpus(write({"clips.jsonl": [{"clip": name} for name in names]}))
    assert {clip.split for clip in bare} == {None}
    assert bare.notes == ()
