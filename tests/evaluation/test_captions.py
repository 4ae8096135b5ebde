from __future__ import annotations

import pytest

from ctsan.evaluation.captions import caption_scores, cider_by_clip
from ctsan.evaluation.diversity import diversity


def test_a_perfect_caption_beats_a_poor_one_and_case_does_not_count() -> None:
    truth = {"a": ["A man sings on stage.", "a man is singing"], "b": ["a dog runs on grass", "the dog runs"]}
    perfect = caption_scores(truth, {"a": "a man sings on stage", "b": "a dog runs on grass"})
    poor = caption_scores(truth, {"a": "a cat", "b": "a cat"})
    assert perfect["BLEU-4"] == pytest.approx(1)
    assert perfect["CIDEr"] > poor["CIDEr"] == pytest.approx(0, abs=0.2)
    assert (perfect["different"], poor["different"]) == (1, 0.5)


def test_each_clip_has_its_own_cider() -> None:
    truth = {"b": ["a man sings on stage"], "a": ["a dog runs on grass"], "c": ["two cats sleep"]}
    said = {"a": "a dog runs on grass", "b": "seven boats", "c": "two cats eat"}
    each = cider_by_clip(truth, said)
    assert each["a"] > each["c"] > each["b"] == 0
    assert sum(each.values()) / 3 == pytest.approx(caption_scores(truth, said)["CIDEr"])


def test_a_sentence_is_right_if_people_said_all_its_pairs_of_words_of_that_clip() -> None:
    references = {name: ["a man drives a car", "a car is red"] for name in "abcde"}
    captions = {
        "a": "a man drives a car",
        "b": "a man drives a car is red",  # each pair is somebody's
        "c": "a a a",
        "d": "a man is red",
        "e": "a man drives a car",
    }
    found = caption_scores(references, captions)
    assert found["different"] == 4 / 5
    assert found["different and right"] == 2 / 5


def test_the_same_sentence_for_every_clip_shows() -> None:
    references = {name: ["a man drives"] for name in "abcd"}
    training = ["A dog runs.", "a man drives", "a man drives", "a dog runs"]  # the first of two as common
    found = diversity(
        references, {"a": "a dog runs", "b": "a dog runs", "c": "a dog sits", "d": ""}, training
    )
    assert found == {
        "different": 3 / 4,
        "different and right": 0,
        "different bigrams": 3 / 6,  # a dog, dog runs, dog sits
        "most said": 2 / 4,
        "most said in training": 2 / 4,
    }
    same = diversity(references, dict.fromkeys("abcd", "a man drives"))
    assert same == {
        "different": 1 / 4,
        "different and right": 1 / 4,
        "different bigrams": 2 / 8,
        "most said": 1,
    }


def test_references_without_words_are_worth_nothing() -> None:
    assert caption_scores({"a": ["!!!"]}, {"a": "a man"})["CIDEr"] == 0
