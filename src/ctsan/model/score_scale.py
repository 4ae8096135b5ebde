"""The scale of a model's scores, so that scores of different models can be compared and added up."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ScoreScale(nn.Module):
    """Mean and standard deviation of a model's scores, saved with its weights.

    A max-margin loss fixes differences of scores, not where they lie or how far they spread: before the means
    of several models are taken, each must come to the same scale.
    """

    score_mean: Tensor
    score_scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("score_mean", torch.zeros(()))
        self.register_buffer("score_scale", torch.ones(()))

    def standardise(self, scores: Tensor) -> Tensor:
        """Scores in standard deviations from their mean; unchanged as long as the scale is not known."""
        return (scores - self.score_mean) / self.score_scale

    @torch.no_grad()
    def calibrate_scale(self, scores: Tensor) -> None:
        """Learn the scale from some scores. Scores that are all the same have none, and are only centred."""
        mean, spread = scores.mean(), scores.std(correction=0)
        self.score_mean.copy_(mean)
        self.score_scale.copy_(spread if spread > 1e-6 * (1 + mean.abs()) else torch.ones_like(spread))
