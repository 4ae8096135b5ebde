"""Confidences of concept words as they are stored: the surest candidates of each shot, in 8 bits.

candidates               positions in the library's list of words
candidate_confidences    0 to 255 for 0 to 1, in descending order; 0 marks an empty column
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_CANDIDATES = 64  # concept words of one shot; the others count as not shown
_LEVELS = 255
_CHUNK_ROWS = 65_536  # whose candidates are compared at once


def quantise(confidences: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Confidences from 0 to 1 as the nearest of 256 levels."""
    levels: NDArray[np.float64] = np.rint(np.nan_to_num(confidences.astype(np.float64)).clip(0, 1) * _LEVELS)
    return levels.astype(np.uint8)


def least_level(min_confidence: float) -> int:
    """The level from which a stored confidence counts as at least `min_confidence`; never that of no word."""
    return max(1, int(quantise(np.array([min_confidence]))[0]))


def id_type(num_words: int) -> type[np.unsignedinteger]:
    """The type of the `candidates` array in a library of so many words."""
    return np.uint16 if num_words <= np.iinfo(np.uint16).max + 1 else np.uint32


def candidate_arrays(
    word_ids: NDArray[Any], confidences: NDArray[Any], num_words: int
) -> dict[str, NDArray[np.generic]]:
    """The arrays to store for n shots, from word ids and confidences (n, K); a negative id is no word."""
    levels = quantise(np.where(word_ids >= 0, confidences, 0))
    surest = np.argsort(-levels.astype(np.int16), axis=1, kind="stable")[:, :MAX_CANDIDATES]
    shape = (len(word_ids), MAX_CANDIDATES)
    ids, kept = np.zeros(shape, id_type(num_words)), np.zeros(shape, np.uint8)
    count = surest.shape[1]
    kept[:, :count] = np.take_along_axis(levels, surest, axis=1)
    ids[:, :count] = np.where(kept[:, :count] > 0, np.take_along_axis(word_ids, surest, axis=1), 0)
    return {"candidates": ids, "candidate_confidences": kept}


def concepts_to_candidates(
    shots: Sequence[Mapping[str, float]], words: Sequence[str]
) -> dict[str, NDArray[np.generic]]:
    """The arrays to store for shots.

    Args:
        shots: the confidences of concept words in each shot.
        words: of the library.
    """
    ids = {word: word_id for word_id, word in enumerate(words)}
    columns = max((len(shot) for shot in shots), default=0)
    word_ids = np.full((len(shots), columns), -1, np.int64)
    confidences = np.zeros((len(shots), columns), np.float32)
    for row, shot in enumerate(shots):
        word_ids[row, : len(shot)] = [ids[word] for word in shot]
        confidences[row, : len(shot)] = list(shot.values())
    return candidate_arrays(word_ids, confidences, len(words))


def stored_levels(
    arrays: Mapping[str, NDArray[Any]], rows: NDArray[np.int64], word_ids: Sequence[int]
) -> NDArray[np.uint8]:
    """The largest level of any of the words in each row of the stored arrays; 0 where none is stored.

    Arrays of older versions have no candidates; their concept words count instead.
    """
    if len(rows) == 0:
        return np.zeros(0, np.uint8)
    has_candidates = "candidates" in arrays
    names = ("candidates", "candidate_confidences") if has_candidates else ("concepts", "confidences")
    levels = []
    for start in range(0, len(rows), _CHUNK_ROWS):
        chunk = rows[start : start + _CHUNK_ROWS]
        ids, stored = (np.asarray(arrays[name][chunk]) for name in names)
        chunk_levels = stored if has_candidates else quantise(stored)
        levels.append(
            np.where(np.isin(ids, word_ids), chunk_levels, 0).max(axis=1, initial=0).astype(np.uint8)
        )
    return np.concatenate(levels)


def to_confidence(levels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Stored levels as confidences from 0 to 1."""
    confidences: NDArray[np.float32] = levels.astype(np.float32) / np.float32(_LEVELS)
    return confidences
