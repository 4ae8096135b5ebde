"""Sentences as padded arrays of word ids, and the blanks in them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import BLANK, PAD, UNK, Vocabulary

WordIds = NDArray[np.int64]

_BLANK = re.compile("_{2,}|<blank>", re.IGNORECASE)  # blanks are typed as underscores of any number


def pad_ids(sentences: Sequence[Sequence[int]]) -> WordIds:
    """Word ids as one array (M, T), padded with `<pad>` at the end."""
    padded = np.full((len(sentences), max(map(len, sentences), default=0)), PAD, np.int64)
    for row, words in enumerate(sentences):
        padded[row, : len(words)] = words
    return padded


def encode_sentences(sentences: Sequence[str], vocabulary: Vocabulary, *, max_words: int) -> WordIds:
    """Word ids of sentences, (M, T), padded. An empty sentence becomes one unknown word."""
    return pad_ids([vocabulary.encode(tokenize(sentence)[:max_words]) or [UNK] for sentence in sentences])


def split_at_blanks(sentence: str) -> list[str]:
    """Split a sentence at its blanks; one part if it has none."""
    return _BLANK.split(sentence)


def encode_blanks(sentence: str, vocabulary: Vocabulary) -> tuple[tuple[int, ...], list[int]]:
    """Word ids of a sentence, and the indices of its blanks."""
    first, *others = (vocabulary.encode(tokenize(part)) for part in split_at_blanks(sentence))
    words, places = list(first), []
    for part in others:
        places.append(len(words))
        words += [BLANK, *part]
    return tuple(words), places
