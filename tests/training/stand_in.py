"""A small task on made-up data: everything the loop may meet, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.clip_encoder import ClipEncoding
from ctsan.tasks.clips import TaskClips
from ctsan.tasks.task import Example, Measured


class Points(NamedTuple):
    inputs: Tensor  # (B, 6)
    targets: Tensor  # (B, 6)


class Network(nn.Module):
    """Dropout, weights that are tied, weights that are frozen, and a buffer that evaluation changes."""

    noise: Tensor

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.outer = nn.Linear(6, 6)
        self.outer.weight = self.inner.weight
        self.frozen = nn.Parameter(torch.ones(6), requires_grad=False)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("noise", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.dropout(self.inner(inputs).tanh()) * self.frozen
        if self.training:
            hidden = hidden + self.noise * torch.randn_like(hidden)
        outputs: Tensor = self.outer(hidden)
        return outputs


class StandIn:
    """Learns to negate; `scores`, where given, are what evaluations say instead of the truth."""

    primary_metric = "fit"

    def __init__(
        self,
        *,
        num_examples: int = 21,
        dropout: float = 0.3,
        scores: Sequence[float] = (),
        seconds: float = 0.0,
        seed: int = 1,
    ) -> None:
        self.calibrated = 0  # times
        torch.manual_seed(seed)
        self.model = Network(dropout)
        self.inputs = torch.randn(num_examples, 6)
        self.scores = list(scores)
        self.seconds = seconds
        self.seen: list[tuple[tuple[int, ...], tuple[bool, ...]]] = []

    @property
    def clips(self) -> TaskClips:
        raise NotImplementedError  # the loop has no need of them

    def measure(self, encoding: ClipEncoding | None = None) -> Measured:
        raise NotImplementedError  # nor of this

    @property
    def buckets(self) -> list[int]:
        return [0] * len(self.inputs)

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> Points:
        self.seen.append((tuple(examples), tuple(mirrored)))
        rows = self.inputs[list(examples)]
        inputs = torch.where(torch.tensor(mirrored)[:, None], rows.flip(1), rows)
        return Points(inputs, -inputs)

    def losses(self, batch: Points) -> dict[str, Tensor]:
        time.sleep(self.seconds)
        outputs = self.model(batch.inputs)
        return {"fit": F.mse_loss(outputs, batch.targets), "size": 0.1 * outputs.square().mean()}

    def num_words(self, batch: Points) -> int:
        return len(batch.inputs)

    def calibrate(self) -> None:
        self.calibrated += 1

    def evaluate(self) -> Mapping[str, float]:
        assert not self.model.training
        if self.scores:
            return {"fit": self.scores.pop(0)}
        torch.randn(3)  # drawing here must change nothing later
        fit = self.fit()
        self.model.noise.fill_(min(-fit, self.model.dropout.p))
        return {"fit": fit, "error on train": -fit}

    def examples(self) -> list[Example]:
        return []

    def fit(self) -> float:
        """Zero at best."""
        self.model.eval()
        with torch.no_grad():
            return -F.mse_loss(self.model(self.inputs), -self.inputs).item()
