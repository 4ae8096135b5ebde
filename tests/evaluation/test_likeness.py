"""Which clips are like that of a query, by captions alone."""

from __future__ import annotations

from ctsan.evaluation.likeness import alike_clips

_CAPTIONS = [
    ["a dog runs in the snow", "dogs run"],
    ["a dog runs on a road"],
    ["a man cooks soup"],
    ["a man eats soup with bread"],
    ["a train"],
    ["a boat"],
    ["a plane"],
    ["a lamp"],
    ["a chair"],
    ["a book"],
]
_WORDS = ["dog", "snow", "road", "man", "soup", "bread", "train", "boat", "plane", "lamp", "chair", "book"]
_LEMMAS = {word: word for word in _WORDS} | {"dogs": "dog", "runs": "run", "run": "run", "cooks": "cook"}


def _alike(query: str, clip: int) -> list[int]:
    is_alike = alike_clips([query], [clip], _CAPTIONS, _LEMMAS)[0]
    return [number for number, alike in enumerate(is_alike) if alike]


def test_the_fifth_with_the_most_similar_captions_is_alike() -> None:
    assert _alike("snow falls", 0) == [0, 1]  # two of ten; the query has a word of the first alone
    assert _alike("bread", 3) == [2, 3]


def test_a_clip_with_half_of_the_querys_words_is_alike() -> None:
    assert set(_alike("a boat and a book", 5)) >= {5, 9}
    assert set(_alike("dogs and a lamp", 7)) >= {0, 1, 7}  # by lemma


def test_words_without_meaning_do_not_count() -> None:
    assert 4 not in _alike("a the on with", 5)
