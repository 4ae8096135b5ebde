"""Concept candidates: the words that the concept detector can predict for a clip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar, cast

from ctsan.errors import abridged
from ctsan.text.files import MAX_COUNT, is_word, problem_with, read_words_json, write_words_json
from ctsan.text.tagging import CONTENT_PARTS, Part, Tagger
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import Vocabulary

_KIND = "ctsan-concepts"
_PROGRESS_INTERVAL = 256  # sentences


@dataclass(frozen=True, slots=True)
class Concept:
    word: str  # as written in captions: "playing" and "plays" are two candidates
    part: Part  # its most frequent part of speech
    count: int  # occurrences in training captions as a noun, verb or adjective
    lemma: str = ""  # dictionary form: "play" for both "playing" and "plays"; "" in files of older versions


@dataclass(frozen=True, slots=True)
class Concepts:
    """Candidates by decreasing frequency; the position is the index in the detector's output."""

    candidates: tuple[Concept, ...]
    _indices: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        indices = {concept.word: index for index, concept in enumerate(self.candidates)}
        if len(indices) != len(self.candidates):
            raise ValueError("a word is listed twice as a concept candidate")
        object.__setattr__(self, "_indices", indices)

    @classmethod
    def build(
        cls,
        sentences: Iterable[Sequence[str]],
        vocabulary: Vocabulary,
        tagger: Tagger,
        *,
        num_concepts: int = 2000,
        progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        """The most frequent nouns, verbs and adjectives of tokenised training captions, in the vocabulary.

        A word counts where it is tagged as one of the three. Words tagged so in at most half of their
        occurrences are left out: most are tagging errors on function words, and `reference` matches words
        whatever their tag.

        Args:
            progress: called with the number of sentences done and their total.
        """
        sentence_counts = Counter(tuple(sentence) for sentence in sentences)  # many captions repeat; tag once
        occurrences: Counter[str] = Counter()
        part_counts: dict[str, Counter[Part]] = {}
        lemma_counts: dict[str, Counter[str]] = {}
        tagged_sentences = zip(tagger.tag(sentence_counts), sentence_counts.values(), strict=True)
        for done, (tagged, count) in enumerate(tagged_sentences, start=1):
            for token in tagged:
                occurrences[token.word] += count
                if token.part in CONTENT_PARTS and token.word in vocabulary:
                    part_counts.setdefault(token.word, Counter())[token.part] += count
                    lemma_counts.setdefault(token.word, Counter())[token.lemma] += count
            if progress and (done % _PROGRESS_INTERVAL == 0 or done == len(sentence_counts)):
                progress(done, len(sentence_counts))
        concepts = [
            Concept(word, _most_frequent(parts), parts.total(), _most_frequent(lemma_counts[word]))
            for word, parts in part_counts.items()
            if 2 * parts.total() > occurrences[word]
        ]
        concepts.sort(key=lambda concept: (-concept.count, concept.word))
        return cls(tuple(concepts[:num_concepts]))

    def __len__(self) -> int:
        return len(self.candidates)

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(concept.word for concept in self.candidates)

    @property
    def lemma_ids(self) -> tuple[int, ...]:
        """The id of each candidate's lemma: "plays" and "playing" have the same."""
        ids: dict[str, int] = {}
        return tuple(ids.setdefault(concept.lemma or concept.word, len(ids)) for concept in self.candidates)

    def reference(self, captions: Iterable[str]) -> list[int]:
        """Sorted indices of the candidates in a clip's captions: where the paper's p* is 1."""
        tokens = {token for caption in captions for token in tokenize(caption)}
        return sorted(self._indices[token] for token in tokens & self._indices.keys())

    def save(self, file: Path) -> None:
        rows = [{"word": c.word, "part": c.part, "count": c.count, "lemma": c.lemma} for c in self.candidates]
        write_words_json(file, _KIND, {"concepts": rows})

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            WordsError: the file is missing, damaged or of another format.
        """
        rows = read_words_json(file, _KIND).get("concepts")
        if not isinstance(rows, list):
            raise problem_with(file, "'concepts' is not a list")
        try:
            return cls(tuple(map(_concept, rows)))
        except ValueError as error:
            raise problem_with(file, str(error)) from None


CountedT = TypeVar("CountedT", bound=str)


def _most_frequent(counts: Counter[CountedT]) -> CountedT:
    """The most frequent value; the alphabetically first of a tie."""
    return max(sorted(counts), key=counts.__getitem__)


def _concept(row: object) -> Concept:
    if isinstance(row, dict):  # without pattern matching, which takes twice the time
        word, part, count = row.get("word"), row.get("part"), row.get("count")
        lemma = row.get("lemma", "")
        are_words = is_word(word) and (lemma == "" or is_word(lemma))
        has_part = isinstance(part, str) and part in CONTENT_PARTS
        if are_words and has_part and type(count) is int and 0 <= count <= MAX_COUNT:
            return Concept(str(word), cast("Part", part), count, str(lemma))
    raise ValueError(f"{abridged(row)} is not a word with its part and count")
