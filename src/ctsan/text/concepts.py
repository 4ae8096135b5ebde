"""Concept candidates: the words that the detector looks for in a clip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

from ctsan.text.files import problem_with, read_words_json, write_words_json
from ctsan.text.tagging import CONTENT_PARTS, Part, Tagger
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import Vocabulary

_KIND = "ctsan-concepts"
_EVERY = 256  # sentences between two reports of progress


@dataclass(frozen=True, slots=True)
class Concept:
    word: str  # as it stands in captions: "playing" and "plays" are two candidates
    part: Part  # what it is most often
    count: int  # how often training captions use it as a noun, verb or adjective
    lemma: str = ""  # its dictionary form, "play" of both; "" in files of older versions


@dataclass(frozen=True, slots=True)
class Concepts:
    """Candidates from the most frequent down; a candidate's place is its index in the detector's output."""

    candidates: tuple[Concept, ...]
    _places: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places = {concept.word: place for place, concept in enumerate(self.candidates)}
        if len(places) != len(self.candidates):
            raise ValueError("a word is listed twice as a concept candidate")
        object.__setattr__(self, "_places", places)

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
        """The most common nouns, verbs and adjectives of tokenised training captions, within the vocabulary.

        A word is counted where its sentence uses it as one of the three. Words that are so in no more than
        half of their uses are left out: most are tagging mistakes on function words, and `reference` looks
        for words, whatever their use. `progress` is told how many sentences are done, and of how many.
        """
        repeats = Counter(tuple(sentence) for sentence in sentences)  # people often write the same sentence
        uses: Counter[str] = Counter()
        uses_as: dict[str, Counter[Part]] = {}
        lemmas: dict[str, Counter[str]] = {}
        tagged_sentences = tagger.tag(repeats)
        for done, (tagged, times) in enumerate(zip(tagged_sentences, repeats.values(), strict=True), start=1):
            for token in tagged:
                uses[token.word] += times
                if token.part in CONTENT_PARTS and token.word in vocabulary:
                    uses_as.setdefault(token.word, Counter())[token.part] += times
                    lemmas.setdefault(token.word, Counter())[token.lemma] += times
            if progress and (done % _EVERY == 0 or done == len(repeats)):
                progress(done, len(repeats))
        concepts = [
            Concept(word, _commonest(parts), parts.total(), _commonest(lemmas[word]))
            for word, parts in uses_as.items()
            if 2 * parts.total() > uses[word]
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
        """A number for each candidate, the same for forms of one word: "plays" and "playing"."""
        numbers: dict[str, int] = {}
        return tuple(numbers.setdefault(each.lemma or each.word, len(numbers)) for each in self.candidates)

    def reference(self, captions: Iterable[str]) -> list[int]:
        """Indices, in rising order, of the candidates in a clip's captions: where the paper's p* is 1."""
        tokens = {token for caption in captions for token in tokenize(caption)}
        return sorted(self._places[token] for token in tokens & self._places.keys())

    def save(self, file: Path) -> None:
        rows = [{"word": c.word, "part": c.part, "count": c.count, "lemma": c.lemma} for c in self.candidates]
        write_words_json(file, _KIND, {"concepts": rows})

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            WordsError: the file is missing, damaged or something else.
        """
        rows = read_words_json(file, _KIND).get("concepts")
        if not isinstance(rows, list):
            raise problem_with(file, "'concepts' is not a list")
        try:
            return cls(tuple(map(_concept, rows)))
        except ValueError as error:
            raise problem_with(file, str(error)) from None


CountedT = TypeVar("CountedT", bound=str)


def _commonest(counted: Counter[CountedT]) -> CountedT:
    """The first in the alphabet among equals."""
    return max(sorted(counted), key=counted.__getitem__)


def _concept(row: object) -> Concept:
    match row:
        case {"word": str(word), "part": "noun" | "verb" | "adjective" as part, "count": int(count), **more}:
            lemma = more.get("lemma", "")
            if isinstance(lemma, str):
                return Concept(word, part, count, lemma)
    raise ValueError(f"{row!r} is not a word with its part and count")
