from __future__ import annotations

import pytest
import torch

from ctsan.evaluation.captions import caption_scores, cider_of_each
from ctsan.evaluation.concepts import precision_at_k


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
    each = cider_of_each(truth, said)
    assert each["a"] > each["c"] > each["b"] == 0
    assert sum(each.values()) / 3 == pytest.approx(caption_scores(truth, said)["CIDEr"])


def test_precision_counts_the_surest_words_only() -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0]])
    reference = torch.tensor([[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    assert precision_at_k(scores, reference, 2) == pytest.approx((1 + 0) / 4)
    assert precision_at_k(scores, reference, 3) == pytest.approx((2 + 1) / 6)


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
