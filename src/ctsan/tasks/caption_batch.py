"""The batch of clips and captions that description and retrieval train on."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ctsan.model.clip_encoder import ClipEncoding


class CaptionBatch(NamedTuple):
    """Clips and the captions trained on in one step. Each clip occurs once."""

    maps: Tensor  # (B, N, h, w, C)
    frame_is_real: Tensor  # (B, N)
    reference: Tensor  # (B, V): 1 where a concept candidate is in the clip's captions
    concept_scores: Tensor  # (B, V), out of fold; (B, 0) if the detector's own scores are used
    captions: Tensor  # (M, T): words between `<bos>` and `<eos>`, then padding
    clip_of_caption: Tensor  # (M,), indices into the batch
    clips: tuple[str, ...]  # clip ids
    frozen: ClipEncoding | None = None  # cached encodings, in place of maps: see `TaskClips.freeze`
