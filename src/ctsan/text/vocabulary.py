"""The vocabulary: the words that a model reads and writes, each with an id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, cast

from ctsan.errors import UsageError, abridged
from ctsan.text.files import MAX_COUNT, first_no_word, problem_with, read_words_json, write_words_json

SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>", "<blank>")  # `tokenize` never returns these
PAD, UNK, BOS, EOS, BLANK = range(len(SPECIALS))
NEVER_SAID = (PAD, UNK, BLANK)  # a caption never contains these

_KIND = "ctsan-vocabulary"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words by id: the special tokens first, in fixed order, then words by decreasing frequency."""

    words: tuple[str, ...]
    counts: tuple[int, ...]  # of each word in the training captions; 0 for special tokens
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ids = {word: word_id for word_id, word in enumerate(self.words)}
        if self.words[: len(SPECIALS)] != SPECIALS or len(ids) != len(self.words):
            raise ValueError("a vocabulary starts with the special tokens and lists every word once")
        if len(self.counts) != len(self.words):
            raise ValueError("a vocabulary has one count per word")
        object.__setattr__(self, "_ids", ids)

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], *, min_count: int = 4) -> Self:
        """The words that occur at least `min_count` times in tokenised training captions.

        Equally frequent words are in alphabetical order, so the order of the captions does not matter.

        Raises:
            UsageError: no word is that frequent.
        """
        counts = Counter(word for sentence in sentences for word in sentence)
        frequent = sorted((-count, word) for word, count in counts.items() if count >= min_count)
        if not frequent:
            raise UsageError(
                f"No word occurs {min_count} times or more in the training captions "
                f"({counts.total()} words in all). Add training captions, or lower the minimum count."
            )
        return cls._from_counts({word: -negated for negated, word in frequent})

    def with_words(self, words: Iterable[str]) -> Vocabulary:
        """This vocabulary with further words appended, with a count of 0; ids do not change."""
        added = tuple(word for word in dict.fromkeys(words) if word not in self)
        return Vocabulary((*self.words, *added), (*self.counts, *(0 for _ in added)))

    @classmethod
    def _from_counts(cls, counts: dict[str, int]) -> Self:
        return cls((*SPECIALS, *counts), (*(0 for _ in SPECIALS), *counts.values()))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Ids of the tokens; that of `<unk>` for a word that is not in the vocabulary."""
        return [self._ids.get(token, UNK) for token in tokens]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Words of the ids, special tokens included."""
        return [self.words[word_id] for word_id in ids]

    def save(self, file: Path) -> None:
        word_counts = zip(self.words[len(SPECIALS) :], self.counts[len(SPECIALS) :], strict=True)
        write_words_json(file, _KIND, {"special": list(SPECIALS), "words": dict(word_counts)})

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            WordsError: the file is missing, damaged or of another format.
        """
        content = read_words_json(file, _KIND)
        counts = content.get("words")
        if content.get("special") != list(SPECIALS):
            raise problem_with(file, f"its special tokens are not {' '.join(SPECIALS)}")
        if not isinstance(counts, dict) or not _are_counts(counts.values()):
            raise problem_with(file, "'words' does not give a whole number for each word")
        if (wrong := first_no_word(counts)) is not None:
            raise problem_with(file, f"{abridged(wrong)} is not a word")
        if clash := [word for word in SPECIALS if word in counts]:
            raise problem_with(file, f"it lists {clash[0]} among the words")
        return cls._from_counts(counts)


def _are_counts(values: Collection[object]) -> bool:
    if not set(map(type, values)) <= {int}:
        return False
    counts = cast("Collection[int]", values)
    return not counts or (min(counts) >= 0 and max(counts) <= MAX_COUNT)
