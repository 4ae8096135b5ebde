"""CIDEr as a reward (Rennie et al., 2017): what a sentence is worth, so often that it has to be cheap.

CIDEr (Vedantam et al., 2015) is the mean cosine, over n-grams of one to four words weighted by rarity, of a
sentence with each of a clip's captions. That is the product of its own unit vector with the mean of theirs,
which is made once a clip: a sentence costs microseconds, where pycocoevalcap, which measures, takes
milliseconds. That one is CIDEr-D, which also cuts off repeated n-grams.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

NGram = tuple[str, ...]

_LONGEST = 4  # words of an n-gram
_LENGTH_SCALE = 6.0  # as in CIDEr-D: a sentence of another length than a caption's is worth less


class CiderReward:
    """Scores for sentences about clips whose captions are known, rarity being that in these captions."""

    def __init__(self, captions: Mapping[str, Sequence[Sequence[str]]]) -> None:
        """Args:
        captions: by clip, each a list of words.
        """
        self._clips = len(captions)
        self._used_in = Counter(
            chain.from_iterable(
                {gram for caption in own for n in range(_LONGEST) for gram in _grams(caption, n)}
                for own in captions.values()
            )
        )
        self._means = {clip: self._mean(own) for clip, own in captions.items()}
        self._lengths = {clip: [len(caption) for caption in own] for clip, own in captions.items()}

    def __call__(self, clip: str, words: Sequence[str]) -> float:
        """From 0, for nothing in common, to 10."""
        likeness = sum(
            sum(weight * mean.get(gram, 0.0) for gram, weight in own.items())
            for own, mean in zip(self._vectors(words), self._means[clip], strict=True)
        )
        lengths = self._lengths[clip]
        fitting = sum(math.exp(-((len(words) - length) ** 2) / (2 * _LENGTH_SCALE**2)) for length in lengths)
        return 10 * likeness / _LONGEST * fitting / len(lengths)

    def _mean(self, captions: Sequence[Sequence[str]]) -> list[dict[NGram, float]]:
        means: list[dict[NGram, float]] = [{} for _ in range(_LONGEST)]
        for caption in captions:
            for mean, own in zip(means, self._vectors(caption), strict=True):
                for gram, weight in own.items():
                    mean[gram] = mean.get(gram, 0.0) + weight / len(captions)
        return means

    def _vectors(self, words: Sequence[str]) -> list[dict[NGram, float]]:
        """For each length of n-grams their weights, with a length of one altogether."""
        vectors = []
        for n in range(_LONGEST):
            weights = {
                gram: count * math.log(self._clips / max(1, self._used_in[gram]))
                for gram, count in Counter(_grams(words, n)).items()
            }
            size = math.sqrt(sum(weight**2 for weight in weights.values())) or 1.0
            vectors.append({gram: weight / size for gram, weight in weights.items()})
        return vectors


def _grams(words: Sequence[str], n: int) -> list[NGram]:
    """Of n + 1 words."""
    return [tuple(words[start : start + n + 1]) for start in range(len(words) - n)]
