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
        ("while a man is singing a woman is dancing is", "a second 'is' for one subject"),
        ("a dog dog runs", "'dog' twice in a row"),
        ("a the man runs", "'a' before 'the'"),
        ("a man a man runs", "'a man' twice in a row"),
        ("a man and a man are talking", "'a man' twice, joined by 'and'"),
        ("a dog is running with a dog and a dog", "'a dog' twice, joined by 'and'"),
        ("a man is sitting in a in a room", "'in a' twice in a row"),
        ("a man is sitting on a in the room", "'a' before 'in'"),
        ("a man is playing the and singing", "'the' before 'and'"),
        ("a people are dancing", "'a' before 'people'"),
        ("a man in a suit is", "it ends with 'is'"),
        ("a man is talking about a woman is", "a second 'is' for one subject"),
        ("a man talking to is singing", "'to' before 'is'"),
        ("a woman is sing on stage", "'is' before 'sing'"),
        ("a young man are talking", "'man' before 'are'"),
        ("a person is a person", "a person that is a person"),
        ("a man is a woman in a car", "a man that is a woman"),
        ("a car is a car", "a car that is a car"),
        ("there is a red car talking about a game", "a car that is talking"),
        ("a cat is sitting on the cat", "a cat on itself"),
        ("a car is driving in a car", "a car in itself"),
        ("a woman is sitting on a plate of food", "woman on a plate"),
        ("a group of people are walking in the sky", "people in a sky"),
        ("a dog is playing a video game", "dog playing game"),
        ("a man is talking to a beach", "talking to a beach"),
        ("a group of people are talking on a table", "talking on a table"),
        ("a man is riding a motorcycle on a bike", "riding a motorcycle on a bike"),
        ("a man is riding a snow in the snow", "a snow in itself"),
        ("a cartoon character is talking to each other", "one that is talking each other"),
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
        "a man is sitting on the back of a man",
        "a group of people are flying in the sky",
        "a dog is playing with a ball",
        "a man is talking to a man",
        "two men are talking to each other",
        "a group of men is talking to each other",
        "a man is talking on the phone",
        "a man is riding a horse on the beach",
        "people are running while a dog is barking",
        "two women talk",
        "a man is talking about the dish he is making",
        "a cross is moving left before a star is moving down",
        "the singer is a girl",
        "a man is a chef in a kitchen",
        "while a man is singing a woman is dancing",
        "a moon flies round and round and then leaves",
        "a star fades in in the middle",
        "people that are standing on a beach are dancing",
        "a girl dances with a guy and a guy is watching",
        "a woman plays with a ball and a ball boy",
        "a man explains how large the horse is",
        "what they are talking about is shown",
        "a man and a woman are talking",
        "a woman sells a men s shirt",
        "there is a talk show",
        "people look at the in game world",
        "there is a man in a car talking",
        "a man is at the table",
    ],
)
def test_sentences_of_people_have_none(caption: str) -> None:
    assert grammar_fault(caption) is None


def test_the_share_is_over_all_captions() -> None:
    assert faulty_share(["a dog runs", "a dog is is"]) == 0.5
    assert faulty_share([]) == 0
