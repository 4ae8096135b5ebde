"""Concept words by a perceptron on the mean feature of a clip, beside the traces.

Not in the paper. A trace follows one region; the probe averages over the whole clip before its first
nonlinearity. On a few thousand web videos it is right more often than traces that learn alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_HIDDEN = 1024
_INPUT_DROPOUT = 0.2
_HIDDEN_DROPOUT = 0.7  # a few thousand clips are soon known by heart
_OTHERS = 0.1  # of a clip's weight has one that others have captioned
_BATCH, _EPOCHS, _FEWEST_STEPS = 64, 10, 150
_LEARNING_RATE, _WEIGHT_DECAY = 2e-3, 0.2
_RAREST = 1e-3  # share of clips: a word that is in fewer, or is not fitted, begins as if it were in so many


class MLPProbe(nn.Module):
    """Two layers, fitted to the training clips before any other training, and left as they are.

    Args:
        channels: of the feature maps.
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, *, channels: int, num_candidates: int) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(channels))
        self.register_buffer("scale", torch.ones(channels))
        self.hidden = nn.Linear(channels, _HIDDEN)
        self.name = nn.Linear(_HIDDEN, num_candidates)
        nn.init.zeros_(self.name.weight)
        nn.init.constant_(self.name.bias, math.log(_RAREST / (1 - _RAREST)))
        self.requires_grad_(requires_grad=False)

    def fit(self, means: Tensor, reference: Tensor, is_own: Tensor) -> None:
        """Learn from training clips; the same clips give the same weights.

        Args:
            means: (n, C), the clips' mean features.
            reference: (n, V), 1 where a candidate is in a clip's captions.
            is_own: (n,), False of clips that others have captioned, who use words as often as they like.
        """
        num_clips = len(means)
        steps = max(_FEWEST_STEPS, _EPOCHS * math.ceil(num_clips / _BATCH))
        counts = torch.where(is_own, 1.0, _OTHERS)[:, None].to(means)
        self.requires_grad_(requires_grad=True)
        was_training = self.training
        self.train()
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(0)
            self._initialise(means[is_own], reference[is_own])
            optimiser = torch.optim.AdamW(self.parameters(), weight_decay=_WEIGHT_DECAY, fused=True)
            for step, clips in zip(range(steps), _batches(num_clips), strict=False):
                for group in optimiser.param_groups:
                    group["lr"] = _LEARNING_RATE * (1 + math.cos(math.pi * step / steps)) / 2
                loss = F.binary_cross_entropy_with_logits(
                    self(means[clips]), reference[clips], reduction="none"
                )
                optimiser.zero_grad()
                (loss * counts[clips]).sum(dim=1).mean().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                optimiser.step()
        optimiser.zero_grad()  # nothing is left of gradients, which are as large as the weights
        self.train(was_training)
        self.requires_grad_(requires_grad=False)

    @torch.no_grad()
    def _initialise(self, means: Tensor, reference: Tensor) -> None:
        """Begin with the scales of the features and with how many clips have each word."""
        self.centre.copy_(means.mean(dim=0))
        self.scale.copy_(means.std(dim=0, correction=0).clamp(min=1e-3))
        for layer, gain in ((self.hidden, 1.0), (self.name, 0.3)):
            nn.init.xavier_uniform_(layer.weight, gain=gain)
            nn.init.zeros_(layer.bias)
        self.name.bias.copy_(reference.mean(dim=0).clamp(_RAREST, 1 - _RAREST).logit())

    def forward(self, means: Tensor) -> Tensor:
        """What the probe alone says of mean features (B, C): (B, V), before a sigmoid."""
        seen = F.layer_norm((means - self.centre) / self.scale, means.shape[1:])
        seen = F.dropout(seen, _INPUT_DROPOUT, self.training and self.hidden.weight.requires_grad)
        hidden = F.gelu(self.hidden(seen))
        hidden = F.dropout(hidden, _HIDDEN_DROPOUT, self.training and self.hidden.weight.requires_grad)
        scores: Tensor = self.name(hidden)
        return scores


def _batches(num_clips: int) -> Iterator[Tensor]:
    """Clips in random order, all of them again and again."""
    while True:
        yield from torch.split(torch.randperm(num_clips), _BATCH)
