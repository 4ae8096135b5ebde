"""Faults that no person makes are found, and sentences that people write have none."""

from __future__ import annotations

import pytest

from ctsan.evaluation.grammar import faulty_share, grammar_fault


@pytest.mark.parametrize(
    ("caption", "fault"),
    [
        ("there is a man is talking", "a second 'is' for one subject"),
        ("a car is talking about a phone", "a car that is talking"),
        ("A man is a woman are dancing.", "a second 'are' for one subject"),
        ("a man is talking about a", "it ends with 'a'"),
        ("a man is is singing", "a second 'is' for one subject"),
        ("a dog dog runs", "'dog' twice in a row"),
        ("a the man runs", "'a' before 'the'"),
        ("", "it is empty"),
    ],
)
def test_faults_are_named(caption: str, fault: str) -> None:
    assert grammar_fault(caption) == fault


@pytest.mark.parametrize(
    "caption",
    [
        "a man is singing and a woman is dancing",
        "there is a man who is talking",
        "someone is showing what is in the box",
        "a man in a car is talking",  # the man does
        "a car is driving on a road",
        "people are running while a dog is barking",
        "two women talk",
        "people that are standing on a beach are dancing",
    ],
)
def test_sentences_of_people_have_none(caption: str) -> None:
    assert grammar_fault(caption) is None


def test_the_share_is_over_all_captions() -> None:
    assert faulty_share(["a dog runs", "a dog is is"]) == 0.5
    assert faulty_share([]) == 0
