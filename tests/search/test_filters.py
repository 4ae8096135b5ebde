"""What a word of a filter means among the concept words of a library."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctsan.errors import UsageError
from ctsan.inference.loading import load_models
from ctsan.search.encodings import joint_embeddings
from ctsan.search.filters import ConceptWords


@pytest.fixture(scope="module")
def words() -> ConceptWords:
    [model] = joint_embeddings(load_models([Path("default")]))
    return ConceptWords(model.concepts.words, [model])


def test_all_forms_of_a_word_go_together(words: ConceptWords) -> None:
    for word in ("dog", "dogs"):
        assert set(words.meant_by(word).forms) == {"dog", "dogs"}


def test_a_person_is_anybody(words: ConceptWords) -> None:
    for word in ("person", "people", "Human"):
        meant = words.meant_by(word)
        assert meant.is_person
        assert {"man", "woman", "girl", "boy", "people", "person"} <= set(meant.forms)
    assert not words.meant_by("woman").is_person


def test_a_misspelt_word_is_read_as_a_concept_word(words: ConceptWords) -> None:
    assert words.meant_by("motorcyle").read_as == "motorcycle"


def test_a_word_that_is_no_concept_is_read_as_the_nearest_by_its_vector(words: ConceptWords) -> None:
    meant = words.meant_by("canine")
    assert meant.read_as in ("dog", "dogs", "puppy", "puppies")


def test_a_word_that_nothing_is_like_is_refused(words: ConceptWords) -> None:
    with pytest.raises(UsageError, match="no concept word like 'xyzzy'"):
        words.meant_by("xyzzy")
