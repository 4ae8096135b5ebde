"""Concept words drawn at random: the paper's rand-SAN (appendix C.1)."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

from ctsan.model.concept_detector import ConceptSource, Detection


class RandomWords(ConceptSource):
    """Uniformly random candidates, independent of the content of a clip.

    The features of a clip seed the generator, so it gets the same words each time, in any batch.

    Args:
        redrawn: draw new words at every training step, so that the model cannot memorise clips by their
            words; the paper does not specify this. Otherwise a clip has the same words in training and at
            inference, and a mirrored clip has others.
    """

    has_confidences = False

    def __init__(self, *, num_candidates: int, redrawn: bool = True) -> None:
        super().__init__()
        self.num_candidates = num_candidates
        self.redrawn = redrawn

    def forward(self, maps: Tensor, frame_is_real: Tensor) -> Detection:  # noqa: ARG002  # what all word sources take
        """Stored maps (B, N, h, w, C) to a detection."""
        batch, frames, height, width, _ = maps.shape
        chance = torch.rand(batch, self.num_candidates)
        if not (self.training and self.redrawn):
            for row, first in enumerate(maps[:, 0].float().cpu()):
                seed = torch.Generator().manual_seed(zlib.crc32(first.numpy().tobytes()))
                chance[row] = torch.rand(self.num_candidates, generator=seed)
        scores = chance.to(maps).logit(eps=1e-6)
        return Detection(scores, maps.new_zeros(batch, frames, 0, height, width), maps.new_zeros(batch, 0, 1))
