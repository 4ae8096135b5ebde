"""A linear probe beside the traces: concept words by the mean feature of a clip alone.

Not in the paper. On a few hundred clips it is right about as often as the traces are, about other words, and
both together more often than either.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.concept_detector import Detection
from ctsan.model.ridge import regress

_RIDGE = 1000.0  # as much as so many clips that tell nothing
_OTHERS = 0.1  # of a clip's weight has one that others have captioned


class ConceptProbe(nn.Module):
    """Ridge regression, worked out before any training and left as it is: it cannot be known by heart.

    Args:
        channels: of the feature maps.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, *, channels: int, num_candidates: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(num_candidates, channels))
        self.register_buffer("bias", torch.zeros(num_candidates))

    @torch.no_grad()
    def start_from(self, means: Tensor, reference: Tensor, is_own: Tensor) -> None:
        """Learn from training clips.

        Args:
            means: (n, C), the clips' mean features in standard deviations.
            reference: (n, V), 1 where a candidate is in a clip's captions.
            is_own: (n,), False of clips that others have captioned, who use words as often as they like.
        """
        seen = F.layer_norm(means, means.shape[1:])
        self.weight.copy_(regress(seen, reference, is_own, ridge=_RIDGE, others=_OTHERS))
        self.bias.copy_(reference[is_own].double().mean(dim=0))

    def scores(self, means: Tensor) -> Tensor:
        """What the probe alone says of mean features (B, C): (B, V), before a sigmoid."""
        own = F.linear(F.layer_norm(means, means.shape[1:]), self.weight, self.bias)
        return own.logit(eps=1e-6)

    def add_to(self, detection: Detection, probed: Tensor) -> Detection:
        """The mean of the confidences of the probe and the traces, which learn as they would without it."""
        both = ((probed.sigmoid() + detection.confidences) / 2).logit(eps=1e-6)
        return detection._replace(scores=both, learnt=detection.scores, probed=probed)
