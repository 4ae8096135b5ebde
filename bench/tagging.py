"""How well each tagger tags captions, against those tagged by hand in tests/text/hand_tagged.txt.

    python bench/tagging.py

TextBlob's tagger comes with the `bench` extra; the package itself does not need it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tabulate import tabulate
from textblob.en import parser

from ctsan.text.tagging import Part, TaggedWord, Tagger, load_tagger, parts_from_penn

HAND_TAGGED = Path(__file__).parent.parent / "tests" / "text" / "hand_tagged.txt"
PARTS: dict[str, Part] = {"n": "noun", "v": "verb", "a": "adjective", "": "other"}
REPEAT = 20  # the sample is small: the clock sees it this many times


class TextBlobTagger:
    """The lexicon and rules of the pattern library, on the same tokens; lemmas are not measured."""

    def tag(self, sentences: Iterable[Sequence[str]]) -> Iterator[list[TaggedWord]]:
        for words in sentences:
            tags = [tag for _, tag, *_ in parser.find_tags(list(words))]
            parts = parts_from_penn(words, tags)
            yield [TaggedWord(word, word, part) for word, part in zip(words, parts, strict=True)]


def read_hand_tagged() -> tuple[list[list[str]], list[list[Part]]]:
    lines = HAND_TAGGED.read_text(encoding="utf-8").splitlines()
    pairs = [
        [token.partition("/")[::2] for token in line.split()]
        for line in lines
        if line and not line.startswith("#")
    ]
    return [[word for word, _ in line] for line in pairs], [
        [PARTS[mark] for _, mark in line] for line in pairs
    ]


def score(name: str, tagger: Tagger) -> list[str | float]:
    sentences, by_hand = read_hand_tagged()
    start = time.perf_counter()
    tagged = list(tagger.tag(sentences * REPEAT))[: len(sentences)]
    seconds = time.perf_counter() - start

    truth = [part for line in by_hand for part in line]
    guess = [word.part for line in tagged for word in line]
    row: list[str | float] = [name, 100 * sum(t == g for t, g in zip(truth, guess, strict=True)) / len(truth)]
    for part in ("noun", "verb", "adjective"):
        hits = sum(t == g == part for t, g in zip(truth, guess, strict=True))
        precision, recall = hits / guess.count(part), hits / truth.count(part)
        row += [100 * precision, 100 * recall, 200 * precision * recall / (precision + recall)]
    return [*row, int(round(REPEAT * len(truth) / seconds, -3))]


def main() -> None:
    sentences, _ = read_hand_tagged()
    print(f"{len(sentences)} captions, {sum(map(len, sentences))} words; per cent, and words a second\n")
    load_tagger()
    parser.find_tags(["warm"])
    headers = ["tagger", "accuracy"]
    headers += [f"{part} {measure}" for part in ("noun", "verb", "adj.") for measure in ("P", "R", "F1")]
    rows = [score("spaCy en-core-web-sm", load_tagger()), score("TextBlob pattern", TextBlobTagger())]
    print(tabulate(rows, headers=[*headers, "words/s"], floatfmt=".1f", tablefmt="github"))


if __name__ == "__main__":
    main()
