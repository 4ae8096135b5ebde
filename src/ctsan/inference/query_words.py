"""Read a query as it was typed: correct misspelt words, and split compounds, into words that a model knows.

Only words of the models' vocabularies and their counts in training captions are used. The rules were chosen
on made misspellings of caption words: bench/spelling.py, docs/search.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from ctsan.errors import UsageError
from ctsan.inference.loaded_model import LoadedModel
from ctsan.inference.results import Correction
from ctsan.text.tokens import tokenize

_MIN_LETTERS = 4  # of a word that is corrected
_MIN_LETTERS_DOUBLED = 3  # of what it is corrected to, if one letter was typed twice; else as many
_MIN_LETTERS_TWICE = 7  # of one that may differ in two letters
_RARE = 20  # known words with fewer mentions in captions may be misspelt
_COMMON = 100  # mentions of what a rare known word is corrected to, and times as many as its own
_LEAST = 4  # mentions of what an unknown word is corrected to: rarer words are more often misspelt themselves
_COMMON_PIECE = 20  # mentions of a piece of a compound
_MIN_PIECE = 3  # letters
_MIN_MENTIONED = 0.5  # share of the words of a query that captions mention, else it is in another language
_MIN_VOCABULARY = 5_000  # words of a vocabulary that tells a language


@dataclass(frozen=True, slots=True)
class ReadQuery:
    text: str  # what is searched for
    corrections: tuple[Correction, ...] = ()
    unknown: tuple[str, ...] = ()  # words of the text that no model knows


class QueryReader:
    """Reads queries for some models, with the words that any of them knows.

    Args:
        suggest: the words nearest to a misspelt one, at most so many letters away; None for rapidfuzz.
    """

    def __init__(
        self,
        models: Sequence[LoadedModel],
        suggest: Callable[[str, int], list[tuple[str, int]]] | None = None,
    ) -> None:
        self.counts: dict[str, int] = {}
        for model in models:
            for word, count in zip(model.vocabulary.words, model.vocabulary.counts, strict=True):
                self.counts[word] = max(count, self.counts.get(word, 0))
        self._suggest = suggest or self._nearest

    def read(self, query: str) -> ReadQuery:
        """Correct a query.

        Raises:
            UsageError: it has no words, no known ones, or seems to be in another language.
        """
        words = tokenize(query)
        if not words:
            raise UsageError(f"The query has no words ({query!r}). Write a sentence, such as 'a dog runs'.")
        read = [(word, self.correct(word)) for word in words]
        self._check_language(read)
        corrections = tuple(
            dict.fromkeys(Correction(word, read_as) for word, read_as in read if read_as not in (word, None))
        )
        unknown = tuple(dict.fromkeys(word for word, read_as in read if read_as is None))
        if len(unknown) == len(set(words)):
            raise UsageError(
                f"None of these words is known to the model: {', '.join(unknown)}. Say it in more common "
                "words. Names of files are not searched."
            )
        text = " ".join(read_as or word for word, read_as in read) if corrections else query
        return ReadQuery(text, corrections, unknown)

    def correct(self, word: str) -> str | None:
        """The word itself, what it is read as, or None if nothing is near it."""
        count = self.counts.get(word)
        if count is not None:
            return word if count >= _RARE else self._misspelt(word) or word
        parts = word.replace("'", "-").split("-")
        if len(parts) > 1:
            known = [part for part in parts if part in self.counts]
            return " ".join(known) if known else None
        if len(word) < _MIN_LETTERS or not word.isalpha():
            return None
        return self._best(word, 1) or self._split(word) or self._best(word, 2)

    def _check_language(self, read: Sequence[tuple[str, str | None]]) -> None:
        """Raise an error if captions mention hardly any word, or if the words are in another script.

        Words of a vocabulary that captions do not mention come with its word vectors, and some of those are
        of other languages. So one word at least must be in no vocabulary ("kung fu fight" is English). Of two
        words, that one must also have nothing near it: else both may be misspelt.
        """
        words = [word for word, _ in read]
        if len(self.counts) < _MIN_VOCABULARY:
            return
        foreign = [word for word in words if not any(letter < "ɐ" for letter in word if letter.isalpha())]
        foreign = [word for word in foreign if any(map(str.isalpha, word)) and word not in self.counts]
        if len(foreign) > len(words) / 2:
            raise UsageError(
                "The query is in a script of which the model knows no words. Ask in the language of its "
                "training captions, which for the bundled model is English."
            )
        strange = [word for word in words if word.isalpha() and not self.counts.get(word)]
        has_unknown = any(word not in self.counts for word in strange)
        has_unreadable = any(read_as is None for _, read_as in read)
        if len(words) - len(strange) < _MIN_MENTIONED * len(words) and (
            (len(words) > 2 and has_unknown) or (len(words) == 2 and has_unreadable)
        ):
            raise UsageError(
                f"Hardly any word of the query is in the training captions (not in them: "
                f"{', '.join(dict.fromkeys(strange))}), so it may be in another language. Ask in that of the "
                "training captions, which for the bundled model is English."
            )

    def _misspelt(self, word: str) -> str | None:
        """What a rare known word is a misspelling of: a common one with one letter more, or two swapped.

        Words that differ in a letter, or lack one of the typed word, are more often words of their own.
        """
        if len(word) < _MIN_LETTERS + 1 or not word.isalpha():
            return None
        near = [
            candidate
            for candidate, _ in self._suggest(word, 1)
            if self.counts[candidate] >= _COMMON * max(1, self.counts[word])
            and candidate[0] == word[0]
            and (len(candidate) > len(word) or sorted(candidate) == sorted(word))
        ]
        return max(near, key=self.counts.__getitem__, default=None)

    def _best(self, word: str, distance: int) -> str | None:
        if distance == 2 and len(word) < _MIN_LETTERS_TWICE:
            return None
        once = _with_each_doubled_letter_once(word)
        near = [
            (other, apart)
            for other, apart in self._suggest(word, distance)
            if len(other) >= _MIN_LETTERS or other in once
        ]
        if not near:
            return None

        def rank(candidate: tuple[str, int]) -> tuple[int, bool, bool, int, str]:
            other, apart = candidate
            return apart, other not in once, other[0] != word[0], -self.counts[other], other

        return min(near, key=rank)[0]

    def _split(self, word: str) -> str | None:
        """Two common words that are written together."""
        pieces = [(word[:cut], word[cut:]) for cut in range(_MIN_PIECE, len(word) - _MIN_PIECE + 1)]
        rarest = {pair: min(self.counts.get(piece, 0) for piece in pair) for pair in pieces}
        best = max(pieces, key=rarest.__getitem__, default=None)
        return " ".join(best) if best and rarest[best] >= _COMMON_PIECE else None

    def _nearest(self, word: str, distance: int) -> list[tuple[str, int]]:
        return _within(word, self._candidates, distance)

    @cached_property
    def _candidates(self) -> list[str]:
        """Words that others are corrected to."""
        return [
            word
            for word, count in self.counts.items()
            if count >= _LEAST and len(word) >= _MIN_LETTERS_DOUBLED and word.isalpha()
        ]


def _with_each_doubled_letter_once(word: str) -> set[str]:
    """The word without one of two equal letters in a row, for each such pair."""
    return {
        word[:place] + word[place + 1 :]
        for place, (letter, following) in enumerate(pairwise(word))
        if letter == following
    }


def nearest_spelling(word: str, among: Sequence[str]) -> str | None:
    """The word with the nearest spelling, the first of several; None if none is near."""
    if not len(word) >= _MIN_LETTERS:
        return None
    near = _within(word, among, 1) or (_within(word, among, 2) if len(word) >= _MIN_LETTERS_TWICE else [])
    return min(near, key=lambda pair: (pair[1], pair[0][0] != word[0]))[0] if near else None


def _within(word: str, among: Sequence[str], distance: int) -> list[tuple[str, int]]:
    """Words with at most so many inserted, deleted, replaced or swapped letters, and how many they have."""
    from rapidfuzz import process  # not at the top: most queries need none
    from rapidfuzz.distance import OSA

    near = process.extract(word, among, scorer=OSA.distance, score_cutoff=distance, limit=None)
    return [(candidate, int(apart)) for candidate, apart, _ in near if apart > 0]
