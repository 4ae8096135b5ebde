"""Words as people type them, read by the vocabulary of the bundled model."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctsan.errors import UsageError
from ctsan.inference.loading import load_models
from ctsan.inference.query_words import QueryReader, nearest_spelling
from ctsan.inference.results import Correction
from ctsan.search.encodings import joint_embeddings


@pytest.fixture(scope="module")
def reader() -> QueryReader:
    return QueryReader(joint_embeddings(load_models([Path("default")])))


@pytest.mark.parametrize(
    ("typed", "read_as"),
    [
        ("motorcyle", "motorcycle"),  # captions have the misspelling too
        ("a cat in the kichen", "a cat in the kitchen"),
        ("basketbal", "basketball"),
        ("a guitarr", "a guitar"),
        ("an umberella", "an umbrella"),
        ("a mann with a dogg", "a man with a dog"),  # doubled letters come first, also for short words
        ("snowboardtrick", "snowboard trick"),
        ("a skatebord on the steet", "a skateboard on the street"),
        ("a man's ice-cream-bowl", "a man's ice cream bowl"),
    ],
)
def test_misspelt_and_compound_words_are_read(reader: QueryReader, typed: str, read_as: str) -> None:
    read = reader.read(typed)
    assert read.text == read_as
    assert read.corrections
    assert read.unknown == ()


@pytest.mark.parametrize(
    "query",
    ["a panda", "pandas", "firetruck", "A dog runs, fast!", "an espresso", "hound", "launch", "floods"],
)
def test_what_is_known_stays_as_it_was_typed(reader: QueryReader, query: str) -> None:
    read = reader.read(query)
    assert (read.text, read.corrections) == (query, ())


def test_each_correction_is_listed_once(reader: QueryReader) -> None:
    read = reader.read("kichen and kichen table")
    assert read.corrections == (Correction("kichen", "kitchen"),)


def test_words_without_anything_near_them_are_named(reader: QueryReader) -> None:
    read = reader.read("a dog with a zzxqkvw")
    assert read.unknown == ("zzxqkvw",)
    with pytest.raises(UsageError, match="None of these words is known to the model: zzxqkvw"):
        reader.read("zzxqkvw")
    with pytest.raises(UsageError, match="has no words"):
        reader.read("?!")


@pytest.mark.parametrize(
    "query",
    [
        "ein Hund läuft durch den Schnee",
        "un perro corre por la nieve",
        "un homme joue au tennis",  # near English words, and some that are in the vocabulary
        "eine Katze",
    ],
)
def test_another_language_gets_one_sentence(reader: QueryReader, query: str) -> None:
    with pytest.raises(UsageError, match=r"another language\. Ask in that of the training captions"):
        reader.read(query)


def test_words_that_no_caption_has_are_not_another_language_if_all_are_known(reader: QueryReader) -> None:
    """The bundled model has vectors of "kung" and "fu"."""
    assert {reader.counts["kung"], reader.counts["fu"]} == {0}
    assert reader.read("kung fu fight").text == "kung fu fight"


def test_two_misspelt_words_are_not_another_language(reader: QueryReader) -> None:
    assert reader.read("motorcyle kichen").text == "motorcycle kitchen"


@pytest.mark.parametrize("query", ["собака бежит", "犬が走る", "الكلب يجري"])
def test_another_script_gets_one_sentence(reader: QueryReader, query: str) -> None:
    with pytest.raises(UsageError, match="a script of which the model knows no words"):
        reader.read(query)


def test_the_nearest_spelling_may_differ_in_two_letters_of_a_long_word() -> None:
    assert nearest_spelling("elefant", ["elephant", "plant"]) == "elephant"
    assert nearest_spelling("doog", ["dog", "door"]) is not None
    assert nearest_spelling("dg", ["dog"]) is None
    assert nearest_spelling("xyzzy", ["dog"]) is None
