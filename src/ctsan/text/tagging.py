"""Which words of a sentence are nouns, verbs and adjectives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Part = Literal["noun", "verb", "adjective", "other"]  # auxiliaries ("is", "has" before a verb) are other
CONTENT_PARTS: frozenset[Part] = frozenset({"noun", "verb", "adjective"})


@dataclass(frozen=True, slots=True)
class TaggedWord:
    word: str  # the token as it stands
    lemma: str  # its dictionary form: "running" -> "run"
    part: Part


class Tagger(Protocol):
    def tag(self, sentences: Iterable[Sequence[str]]) -> Iterator[list[TaggedWord]]:
        """Tag tokenised sentences, one list for each, one entry for each token, in order."""
        ...
