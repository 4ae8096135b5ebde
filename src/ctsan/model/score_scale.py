"""The scale of a model's scores, for comparing and averaging the scores of different models."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ScoreScale(nn.Module):
    """Mean and standard deviation of a model's scores, saved with its weights.

    A max-margin loss does not determine the mean and the spread of scores, so the scores of several models
    have to be standardised before averaging.
    """

    score_mean: Tensor
    score_scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("score_mean", torch.zeros(()))
        self.register_buffer("score_scale", torch.ones(()))

    def standardise(self, scores: Tensor) -> Tensor:
        """Standardise scores; unchanged before `calibrate_scale`."""
        return (scores - self.score_mean) / self.score_scale

    @torch.no_grad()
    def calibrate_scale(self, scores: Tensor) -> None:
        """Set mean and standard deviation from scores. Constant scores are only centred."""
        mean, spread = scores.mean(), scores.std(correction=0)
        self.score_mean.copy_(mean)
        self.score_scale.copy_(spread if spread > 1e-6 * (1 + mean.abs()) else torch.ones_like(spread))
