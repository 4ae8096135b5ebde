"""Which clips a query may also mean, judged by their captions and not by a model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ctsan.text.tokens import tokenize

_ALIKE_SHARE = 0.2  # of the clips: those with the most similar captions
_SHARED_WORDS = 0.5  # of a query's words, in the captions of a clip


def alike_clips(
    queries: Sequence[str],
    clip_of_query: Sequence[int],
    captions: Sequence[Sequence[str]],
    lemmas: Mapping[str, str],
) -> NDArray[np.bool_]:
    """Mark the clip of each query and the clips like it, (queries, clips).

    A clip is like that of a query if its captions are among the fifth that is most similar to those of the
    query's clip, by the cosine of their words weighted by log(1 + count) · log(clips / clips with the word),
    or if its captions hold at least half of the query's words. Only content words count, by their lemmas.

    Args:
        captions: of each clip.
        lemmas: of the content words.
    """

    def content(sentence: str) -> list[str]:
        return [lemmas[word] for word in tokenize(sentence) if word in lemmas]

    counts = [Counter(word for caption in own for word in content(caption)) for own in captions]
    num_clips = len(counts)
    clips_with = Counter(word for words in counts for word in words)
    places = {word: place for place, word in enumerate(clips_with)}
    rarity = np.log(num_clips / np.array(list(clips_with.values()), np.float32)) + np.float32(1e-6)
    words = np.zeros((num_clips, len(places)), np.float32)
    for row, clip_counts in enumerate(counts):
        for word, count in clip_counts.items():
            words[row, places[word]] = math.log1p(count)
    has_word = words > 0
    weighted = words * rarity
    weighted /= np.maximum(np.linalg.norm(weighted, axis=1, keepdims=True), 1e-12)
    likeness = weighted @ weighted.T  # (clips, clips)
    nearest = np.argsort(-likeness, axis=1, kind="stable")[:, : max(1, int(_ALIKE_SHARE * num_clips))]
    is_alike = np.zeros((len(queries), num_clips), bool)
    for row, (query, clip) in enumerate(zip(queries, clip_of_query, strict=True)):
        is_alike[row, nearest[clip]] = True
        is_alike[row, clip] = True
        of_query = [places[word] for word in set(content(query)) if word in places]
        if of_query:
            is_alike[row] |= has_word[:, of_query].mean(axis=1) >= _SHARED_WORDS
    return is_alike
