"""Clips with captions, as description and retrieval learn from them."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ctsan.model.clip_encoder import ClipEncoding


class CaptionBatch(NamedTuple):
    """Clips and all the captions of theirs that are learnt in one step; a clip is there once."""

    maps: Tensor  # (B, N, h, w, C)
    frame_is_real: Tensor  # (B, N)
    reference: Tensor  # (B, V): 1 where a concept candidate is in the clip's captions
    concept_scores: Tensor  # (B, V), out of fold; (B, 0) where the detector's own words are learnt with
    captions: Tensor  # (M, T): words between `<bos>` and `<eos>`, then padding
    clip_of_caption: Tensor  # (M,), places in the batch
    clips: tuple[str, ...]  # their ids
    frozen: ClipEncoding | None = None  # by a frozen encoder, see `TaskClips.freeze`; maps are then left out
