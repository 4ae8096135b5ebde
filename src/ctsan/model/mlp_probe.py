"""Concept words from the mean feature of a clip, by a perceptron that learns beside the traces.

Not in the paper. It averages over the whole clip before its first nonlinearity, where a trace follows one
region: on a few thousand clips it is right more often than the traces, and both together about other words.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_HIDDEN = 1024
_INPUT_DROPOUT = 0.2
_HIDDEN_DROPOUT = 0.7  # a few thousand clips are soon known by heart


class MLPProbe(nn.Module):
    """Two layers, learnt by a concept loss of their own: the traces learn as they would without it.

    Args:
        channels: of the feature maps.
    """

    def __init__(self, *, channels: int, num_candidates: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(channels, _HIDDEN)
        self.name = nn.Linear(_HIDDEN, num_candidates)
        nn.init.xavier_uniform_(self.hidden.weight)
        nn.init.zeros_(self.hidden.bias)
        nn.init.xavier_uniform_(self.name.weight, gain=0.3)
        nn.init.zeros_(self.name.bias)

    @torch.no_grad()
    def start_from(self, frequencies: Tensor) -> None:
        """Begin with the share of training clips that each candidate is used in, (V,)."""
        self.name.bias.copy_(frequencies.clamp(1e-3, 1 - 1e-3).logit())

    def scores(self, means: Tensor) -> Tensor:
        """What the probe alone says of mean features (B, C) in standard deviations: (B, V)."""
        seen = F.dropout(F.layer_norm(means, means.shape[1:]), _INPUT_DROPOUT, self.training)
        hidden = F.dropout(F.gelu(self.hidden(seen)), _HIDDEN_DROPOUT, self.training)
        scores: Tensor = self.name(hidden)
        return scores

    def mix(self, own: Tensor, traces: Tensor) -> Tensor:
        """Scores of the probe and of the traces, (B, V), to those of both: the mean of their confidences."""
        return ((own.sigmoid() + traces.sigmoid()) / 2).logit(eps=1e-6)
