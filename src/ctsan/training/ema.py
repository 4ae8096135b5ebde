"""A running mean of the weights, which is steadier than the weights of any one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class AveragedWeights:
    """An exponential mean of a model's parameters over the steps.

    Args:
        decay: what is kept of the mean at a step. The first steps keep less, so that the weights that
            training began with are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._weights = {name: weights for name, weights in model.named_parameters() if weights.requires_grad}
        self.mean = {name: weights.detach().clone() for name, weights in self._weights.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step, numbered from 0."""
        decay = min(self.decay, (step + 1) / (step + 10))
        weights = list(self._weights.values())
        average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        average(list(self.mean.values()), weights, step)

    def restore(self, mean: Mapping[str, Tensor]) -> None:
        for name, weights in mean.items():
            self.mean[name].copy_(weights)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the mean for its weights; afterwards its own again, bit for bit."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for name, weights in self._weights.items():
            weights.data, self.mean[name] = self.mean[name], weights.data
