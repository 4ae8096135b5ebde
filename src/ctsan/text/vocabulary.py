"""The words that a model reads and writes, each with a number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from ctsan.errors import UsageError
from ctsan.text.files import problem_with, read_words_json, write_words_json

SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>", "<blank>")  # no tokenised sentence holds any of these
PAD, UNK, BOS, EOS, BLANK = range(len(SPECIALS))

_KIND = "ctsan-vocabulary"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words by number: the special tokens first, in fixed places, then words from the most frequent down."""

    words: tuple[str, ...]
    counts: tuple[int, ...]  # how often each word stands in the training captions; 0 for special tokens
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = {word: number for number, word in enumerate(self.words)}
        if self.words[: len(SPECIALS)] != SPECIALS or len(numbers) != len(self.words):
            raise ValueError("a vocabulary starts with the special tokens and holds every word once")
        if len(self.counts) != len(self.words):
            raise ValueError("a vocabulary has one count for each word")
        object.__setattr__(self, "_numbers", numbers)

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], *, min_count: int = 4) -> Self:
        """The words that tokenised training captions hold `min_count` times or more.

        Equally frequent words stand in alphabetical order, so the order of the captions changes nothing.

        Raises:
            UsageError: no word is that frequent.
        """
        seen = Counter(word for sentence in sentences for word in sentence)
        kept = sorted((-count, word) for word, count in seen.items() if count >= min_count)
        if not kept:
            raise UsageError(
                f"No word is seen {min_count} times or more in the training captions "
                f"({seen.total()} words in all). Give more training captions, or lower the least count."
            )
        return cls._of({word: -count for count, word in kept})

    def with_words(self, words: Iterable[str]) -> Vocabulary:
        """These words in their places, and after them others, which captions hold too seldom or never."""
        added = tuple(word for word in dict.fromkeys(words) if word not in self)
        return Vocabulary((*self.words, *added), (*self.counts, *(0 for _ in added)))

    @classmethod
    def _of(cls, counts: dict[str, int]) -> Self:
        return cls((*SPECIALS, *counts), (*(0 for _ in SPECIALS), *counts.values()))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._numbers

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Numbers of the tokens; `<unk>` for a word that is not in the vocabulary."""
        return [self._numbers.get(token, UNK) for token in tokens]

    def decode(self, numbers: Iterable[int]) -> list[str]:
        """Words of the numbers, special tokens included."""
        return [self.words[number] for number in numbers]

    def save(self, file: Path) -> None:
        counted = zip(self.words[len(SPECIALS) :], self.counts[len(SPECIALS) :], strict=True)
        write_words_json(file, _KIND, {"special": list(SPECIALS), "words": dict(counted)})

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            WordsError: the file is missing, damaged or something else.
        """
        content = read_words_json(file, _KIND)
        counts = content.get("words")
        if content.get("special") != list(SPECIALS):
            raise problem_with(file, f"its special tokens are not {' '.join(SPECIALS)}")
        if not isinstance(counts, dict) or not all(type(count) is int for count in counts.values()):
            raise problem_with(file, "'words' does not give a whole number for each word")
        if clash := [word for word in SPECIALS if word in counts]:
            raise problem_with(file, f"it lists {clash[0]} among the words")
        return cls._of(counts)
