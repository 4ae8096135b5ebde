"""Exponential moving average (EMA) of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class AveragedWeights:
    """Exponential moving average of a model's trainable parameters.

    Args:
        decay: factor of the average at each step. It is smaller in the first steps,
            min(decay, (step + 1) / (step + 10)), so that the initial weights fade quickly.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._weights = {name: weights for name, weights in model.named_parameters() if weights.requires_grad}
        self.mean = {name: weights.detach().clone() for name, weights in self._weights.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average with the weights after a step, numbered from 0."""
        decay = min(self.decay, (step + 1) / (step + 10))
        weights = list(self._weights.values())
        average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        average(list(self.mean.values()), weights, step)

    def restore(self, mean: Mapping[str, Tensor]) -> None:
        for name, weights in mean.items():
            self.mean[name].copy_(weights)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Swap the averaged weights into the model; restore its own weights, bit for bit, on exit."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for name, weights in self._weights.items():
            weights.data, self.mean[name] = self.mean[name], weights.data
