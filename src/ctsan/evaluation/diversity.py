"""Diversity of captions; the same sentence for every clip is a common failure of captioning models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from ctsan.text.tokens import tokenize


def diversity(
    references: Mapping[str, Sequence[str]], captions: Mapping[str, str], training: Iterable[str] = ()
) -> dict[str, float]:
    """Shares from 0 to 1, over the tokens of `tokenize`.

    - `different`: distinct captions over clips.
    - `different and right`: the same, counting only captions whose every bigram is in the clip's references.
    - `different bigrams`: distinct bigrams over bigrams.
    - `most said`: the share of clips with the most frequent caption.
    - `most said in training`: the share of clips with the most frequent training caption, the first of a tie.

    Args:
        training: captions of the training clips; without any, the last share is left out.
    """
    tokens = {clip: tuple(tokenize(caption)) for clip, caption in captions.items()}
    counts = Counter(tokens.values())
    bigrams = [pair for words in tokens.values() for pair in pairwise(words)]
    supported = {words for clip, words in tokens.items() if _is_supported(words, references[clip])}
    num_clips = max(len(tokens), 1)
    shares = {
        "different": len(counts) / num_clips,
        "different and right": len(supported) / num_clips,
        "different bigrams": len(set(bigrams)) / max(len(bigrams), 1),
        "most said": max(counts.values(), default=0) / num_clips,
    }
    training_counts = Counter(tuple(tokenize(caption)) for caption in training)
    if training_counts:
        most_frequent = max(training_counts, key=lambda words: training_counts[words])
        shares["most said in training"] = counts[most_frequent] / num_clips
    return shares


def _is_supported(words: Sequence[str], references: Iterable[str]) -> bool:
    """Whether there are bigrams and all of them are in the references."""
    pairs = set(pairwise(words))
    return bool(pairs) and pairs <= {pair for sentence in references for pair in pairwise(tokenize(sentence))}
