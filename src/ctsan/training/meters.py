"""Mean losses and words per second of recent steps."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import Tensor

from ctsan.training.processes import Processes

_FADING = 0.96  # smooths the displayed losses over about 25 steps


class Meters:
    """Sums losses and words since the last row, on the device, so that no step synchronises with it."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._recent: Tensor | None = None  # losses and words, exponentially decayed
        self._recent_steps = self._recent_seconds = 0.0
        self._begin()
        self.restart_clock()

    def _begin(self) -> None:
        self._sums: Tensor | None = None  # losses and words
        self._steps, self._seconds = 0, 0.0

    def restart_clock(self) -> None:
        """Exclude the time since the last step, which was not spent on training."""
        self._clock = time.monotonic()

    def add(self, losses: Mapping[str, Tensor], *, share: float, words: int) -> None:
        """Add one step: mean losses over this process' share of the batch, and its number of words."""
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
        """Return this process' smoothed losses, and its words per second."""
        return self._means(self._recent, self._recent_steps, self._recent_seconds)

    def take(self, processes: Processes) -> tuple[dict[str, float], float]:
        """Return mean losses and words per second of all processes since the last call, and reset."""
        assert self._sums is not None, "no step since the last time"
        row = self._means(processes.total(self._sums), self._steps, self._seconds)
        self._begin()
        return row

    def _means(self, sums: Tensor | None, steps: float, seconds: float) -> tuple[dict[str, float], float]:
        assert sums is not None, "no step yet"
        *losses, words = sums.tolist()
        means = {name: loss / steps for name, loss in zip(self._names, losses, strict=True)}
        return means, words / max(seconds, 1e-9)
