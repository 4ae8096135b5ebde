"""Feature maps and captions as padded tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ctsan.text.sentences import pad_ids
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import BOS, EOS, Vocabulary
from ctsan.video.store import Maps


def pad_maps(clips: Sequence[Maps]) -> tuple[Tensor, Tensor]:
    """Pad maps (frames, h, w, C) of several clips to (B, N, h, w, C), and which frames are real (B, N)."""
    longest = max(len(maps) for maps in clips)
    padded = torch.zeros((len(clips), longest, *clips[0].shape[1:]))
    is_real = torch.zeros((len(clips), longest), dtype=torch.bool)
    for row, maps in enumerate(clips):
        padded[row, : len(maps)] = torch.from_numpy(maps)
        is_real[row, : len(maps)] = True
    return padded, is_real


def encode_captions(
    captions: Sequence[str], vocabulary: Vocabulary, *, max_words: int | None = None
) -> list[list[int]]:
    """Word ids of each caption between `<bos>` and `<eos>`; captions are truncated to `max_words`."""
    return [[BOS, *vocabulary.encode(tokenize(caption)[:max_words]), EOS] for caption in captions]


def pad_words(sentences: Sequence[Sequence[int]]) -> Tensor:
    """Word ids as one tensor (M, T), padded with `<pad>` at the end."""
    return torch.from_numpy(pad_ids(sentences))


def references(indices: Sequence[Sequence[int]], num_candidates: int) -> Tensor:
    """The paper's p* as multi-hot rows (B, V), from the indices of the candidates in each clip's captions."""
    reference = torch.zeros(len(indices), num_candidates)
    for row, present in enumerate(indices):
        reference[row, list(present)] = 1
    return reference
