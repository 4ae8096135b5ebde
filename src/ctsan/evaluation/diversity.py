"""How different captions are: the same sentence for every clip is this field's oldest failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from ctsan.text.tokens import tokenize


def diversity(
    references: Mapping[str, Sequence[str]], captions: Mapping[str, str], training: Iterable[str] = ()
) -> dict[str, float]:
    """Shares, over our own tokens.

    `different` is the share of clips that would be left if every sentence were said once; for `different and
    right` only those sentences count of which every pair of neighbouring words is in the clip's references.
    `different bigrams` is the share of such pairs that would be left if each were said once. `most said` is
    the share of clips of which the same sentence is said, that which is said most; `most said in training` is
    that of the sentence which people wrote most often for training clips, the first of several such.

    Args:
        training: captions of the training clips; without any, the last share is left out.
    """
    said = {clip: tuple(tokenize(caption)) for clip, caption in captions.items()}
    counts, bigrams = Counter(said.values()), [pair for words in said.values() for pair in pairwise(words)]
    right = {words for clip, words in said.items() if _is_right(words, references[clip])}
    clips = max(len(said), 1)
    shares = {
        "different": len(counts) / clips,
        "different and right": len(right) / clips,
        "different bigrams": len(set(bigrams)) / max(len(bigrams), 1),
        "most said": max(counts.values(), default=0) / clips,
    }
    written = Counter(tuple(tokenize(caption)) for caption in training)
    if written:
        shares["most said in training"] = counts[max(written, key=lambda words: written[words])] / clips
    return shares


def _is_right(words: Sequence[str], references: Iterable[str]) -> bool:
    pairs = set(pairwise(words))
    return bool(pairs) and pairs <= {pair for sentence in references for pair in pairwise(tokenize(sentence))}
