"""Filters by concept word: which words a filter means, and from which confidence a shot shows one.

The confidences were chosen on validation clips: bench/filters.py, docs/search.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ctsan.errors import UsageError
from ctsan.inference.ensemble import word_ids
from ctsan.inference.loaded_model import JointEmbedding
from ctsan.inference.query_words import nearest_spelling

SHOWN = 0.5  # least confidence of what `concepts` asks for
NOT_SHOWN = 0.1  # least confidence of what `without` hides
NOT_SHOWN_PERSON = 0.3  # the same for a person: some word for one is likely in any video

_MIN_COSINE = 0.7  # of a word with the concept word that is taken in its place
_ANYBODY = frozenset({"person", "persons", "people", "human", "humans", "someone", "somebody", "anybody"})
_PEOPLE = frozenset(
    [
        "actor",
        "actress",
        "athlete",
        "audience",
        "babies",
        "baby",
        "boy",
        "boys",
        "chef",
        "chefs",
        "child",
        "children",
        "couple",
        "crowd",
        "dancer",
        "dancers",
        "girl",
        "girls",
        "guy",
        "guys",
        "kid",
        "kids",
        "ladies",
        "lady",
        "man",
        "men",
        "people",
        "performer",
        "person",
        "player",
        "players",
        "singer",
        "singers",
        "student",
        "students",
        "teacher",
        "teenager",
        "toddler",
        "woman",
        "women",
    ]
)


@dataclass(frozen=True, slots=True)
class FilterCount:
    """A filter of a search, and how many shots of the library show what it names."""

    word: str  # as it was typed
    read_as: str  # the concept word, of which all forms count
    is_excluded: bool
    num_shots: int


class MeantWords(NamedTuple):
    read_as: str
    forms: tuple[str, ...]  # concept words, any of which counts

    @property
    def is_person(self) -> bool:
        """Whether all people are meant."""
        return self.read_as in _ANYBODY


class ConceptWords:
    """The concept words of a library, and what words of filters mean among them.

    Args:
        words: of the library.
        embeddings: its models, which know lemmas and vectors of words.
    """

    def __init__(self, words: Sequence[str], embeddings: Sequence[JointEmbedding]) -> None:
        self._words, self._embeddings = words, embeddings

    def meant_by(self, word: str) -> MeantWords:
        """What a word of a filter stands for.

        The forms of a word go together ("dog" and "dogs"), and a word for anybody stands for all people. A
        word that is none of the concept words is read as the nearest one, by spelling or by its vector.

        Raises:
            UsageError: none is near.
        """
        word = word.strip().lower()
        if word in _ANYBODY and (people := tuple(person for person in self._words if person in _PEOPLE)):
            return MeantWords(word, people)
        nearest = word if self._forms(word) else self._by_spelling(word) or self._by_vector(word)
        if nearest is None:
            raise UsageError(
                f"The library has no concept word like {word!r}. Use a single common word for what is seen, "
                "or search for it."
            )
        return MeantWords(nearest, self._forms(nearest))

    def _forms(self, word: str) -> tuple[str, ...]:
        lemma = self._lemmas.get(word, word)
        forms = [form for form in self._words if form == word or self._lemmas.get(form, form) == lemma]
        return tuple(forms)

    @cached_property
    def _lemmas(self) -> Mapping[str, str]:
        return {
            candidate.word: candidate.lemma or candidate.word
            for model in self._embeddings
            for candidate in model.concepts.candidates
        }

    def _by_spelling(self, word: str) -> str | None:
        return nearest_spelling(word, self._words)

    def _by_vector(self, word: str) -> str | None:
        for model in self._embeddings:
            if word in model.vocabulary:
                vectors = model.embed_sentences(word_ids(model, [word, *self._words]))
                cosines = vectors[1:] @ vectors[0]
                if cosines.max() >= _MIN_COSINE:
                    return self._words[int(np.argmax(cosines))]
        return None
