"""The expected CIDEr of sentences by a phrase probe, in NumPy: see `extensions.phrase_probe`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ctsan.inference.loaded_model import Floats, Ints
from ctsan.io.onnx_graph import Array
from ctsan.text.sentences import WordIds

_LONGEST = 4  # most words in a phrase
_WORDS = 1 << 15  # base of phrase keys: four words fit into 60 bits


def expected_cider(words: WordIds, clip_weights: Floats, probe: Mapping[str, Array]) -> Floats:
    """Expected CIDEr (B, M) of sentences (B, M, T), padded with 0, for the clip in their row.

    Args:
        clip_weights: (B, phrases), predicted tf-idf weights of all phrases for each clip.
        probe: weights of a model, with those of its probe.
    """
    clips, count, most = words.shape
    places, shares = _shares(_keys(words.reshape(-1, most)), probe)
    by_clip = np.maximum(places, 0).reshape(clips, -1)
    weights = np.take_along_axis(clip_weights, by_clip, axis=1).reshape(places.shape) * (places >= 0)
    alike = (shares * weights).sum(axis=(1, 2), dtype=np.float32)
    expected: Floats = np.float32(10 / _LONGEST) * alike.reshape(clips, count)
    return expected


def _keys(words: WordIds) -> Ints:
    """Integer keys of the phrases of sentences (M, T), by length and position: (M, 4, T); -1 for none."""
    rows, most = words.shape
    keys = np.full((rows, _LONGEST, most), -1, np.int64)
    key = np.zeros_like(words)
    for length in range(min(_LONGEST, most)):
        last = words[:, length:]
        key = key[:, : most - length] * _WORDS + last
        keys[:, length, : most - length] = np.where(last == 0, -1, key)
    return keys


def _shares(keys: Ints, probe: Mapping[str, Array]) -> tuple[Ints, Floats]:
    """Indices of phrases in the vocabulary, -1 if unknown, and their tf-idf weights, both (M, 4, T).

    For each phrase length, the tf-idf vector of a sentence is normalised to length one.
    """
    known: Ints = probe["phrases.keys"]
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    is_known = (known[places] == keys) & (keys >= 0)
    weights = np.where(is_known, probe["phrases.rarity"][places], probe["phrases.unheard"])
    weights[keys < 0] = 0
    alike = (keys[..., None] == keys[..., None, :]).sum(axis=-1)
    size = np.sqrt((np.square(weights) * alike).sum(axis=2, keepdims=True))
    return np.where(is_known, places, -1), weights / np.maximum(size, np.float32(1e-9)).astype(np.float32)
