"""Losses and words per second of the last steps."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import Tensor

from ctsan.training.processes import Processes

_FADING = 0.96  # some 25 steps count in what a person sees


class Meters:
    """Adds up losses and words since the last row, on the device: no step waits for them to be read."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._recent: Tensor | None = None  # losses and words, older steps fading
        self._recent_steps = self._recent_seconds = 0.0
        self._begin()
        self.restart_clock()

    def _begin(self) -> None:
        self._sums: Tensor | None = None  # losses and words
        self._steps, self._seconds = 0, 0.0

    def restart_clock(self) -> None:
        """What was done since the last step was no training."""
        self._clock = time.monotonic()

    def add(self, losses: Mapping[str, Tensor], *, share: float, words: int) -> None:
        """One step's mean losses over this process' share of the batch, and how many words were in it."""
        now = time.monotonic()
        seconds, self._clock = now - self._clock, now
        self._names = list(losses)
        means = torch.stack([loss.detach().float() for loss in losses.values()])
        counted = means.new_tensor([words])
        sums, recent = torch.cat([means * share, counted]), torch.cat([means, counted])
        self._sums = sums if self._sums is None else self._sums + sums
        self._recent = recent if self._recent is None else self._recent * _FADING + recent
        self._recent_steps = self._recent_steps * _FADING + 1
        self._recent_seconds = self._recent_seconds * _FADING + seconds
        self._steps += 1
        self._seconds += seconds

    def recent(self) -> tuple[dict[str, float], float]:
        """This process' losses of late, and its words a second."""
        return self._means(self._recent, self._recent_steps, self._recent_seconds)

    def take(self, processes: Processes) -> tuple[dict[str, float], float]:
        """Mean losses since the last time, and words a second, over all processes."""
        assert self._sums is not None, "no step since the last time"
        row = self._means(processes.total(self._sums), self._steps, self._seconds)
        self._begin()
        return row

    def _means(self, sums: Tensor | None, steps: float, seconds: float) -> tuple[dict[str, float], float]:
        assert sums is not None, "no step yet"
        *losses, words = sums.tolist()
        means = {name: loss / steps for name, loss in zip(self._names, losses, strict=True)}
        return means, words / max(seconds, 1e-9)
