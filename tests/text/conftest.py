"""A small corpus of training captions with two worlds, music and cooking, so that neighbours can be told."""

from __future__ import annotations

import itertools

import pytest

PEOPLE = ("a man", "the old woman", "someone", "a young girl")
MUSIC = ("plays the guitar", "is playing a piano", "sings with the band", "is singing and plays the drums")
FOOD = ("cooks some rice", "is frying onions in a pan", "adds onions to the rice", "stirs a pan")


@pytest.fixture(scope="session")
def captions() -> list[str]:
    music = [f"{who} {does} on stage" for who, does in itertools.product(PEOPLE, MUSIC)]
    food = [f"{who} {does} in the kitchen" for who, does in itertools.product(PEOPLE, FOOD)]
    return music + food + music[::-1] + food[::-1]
