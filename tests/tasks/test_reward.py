"""CIDEr as a reward, beside the metric that it stands for."""

from __future__ import annotations

import math

import pytest

from ctsan.evaluation.captions import cider_of_each
from ctsan.tasks.reward import CiderReward

CAPTIONS = {
    "dog": ["a dog runs on the grass", "the dog is running", "a brown dog runs after a ball"],
    "cook": ["a woman is cooking", "a woman cooks soup in a kitchen", "someone stirs a pot of soup"],
    "car": ["a man drives a red car", "a car on a road", "a man is driving fast"],
}
reward = CiderReward({clip: [caption.split() for caption in own] for clip, own in CAPTIONS.items()})


def test_it_is_the_number_worked_out_by_hand() -> None:
    one = CiderReward({"x": [["red"], ["blue"]], "y": [["red"]]})
    # Only 'blue' is rare enough to weigh anything: of four lengths of n-grams one agrees, with half of the
    # captions, and all are of one word.
    assert one("x", ["blue"]) == pytest.approx(10 * 0.5 / 4)
    # A second word that nobody says halves the square of what is left, and the length differs by one.
    assert one("x", ["blue", "green"]) == pytest.approx(10 * 0.5 / 2**0.5 / 4 * math.exp(-1 / 72))


def test_nothing_in_common_is_worth_nothing() -> None:
    assert reward("dog", ["xyz", "uvw"]) == 0
    assert reward("dog", []) == 0


def test_sentences_come_in_the_order_of_the_metric() -> None:
    sentences = [
        "a dog runs on the grass",
        "a dog is running",
        "a dog is cooking soup",
        "a man drives a car",
    ]
    rewards = [reward("dog", sentence.split()) for sentence in sentences]
    metric = [
        cider_of_each(CAPTIONS, {"dog": sentence, "cook": "a woman cooks", "car": "a man drives"})["dog"]
        for sentence in sentences
    ]
    assert sorted(rewards, reverse=True) == rewards
    assert sorted(metric, reverse=True) == metric


def test_saying_a_thing_over_and_over_does_not_pay() -> None:
    assert reward("dog", ["a", "dog", "a", "dog", "a", "dog"]) < reward("dog", ["a", "dog", "runs"])
