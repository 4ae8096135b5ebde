"""The learning rate at each step."""

from __future__ import annotations

import math

from ctsan.config import OptimiserSettings


def learning_rate(settings: OptimiserSettings, step: int, total_steps: int) -> float:
    """Compute the learning rate of a step, numbered from 0: linear warm-up, then the schedule.

    `cosine` decays to about 0 at the last step; `halve` halves the rate every `halve_every` steps.
    """
    after = step - settings.warmup_steps
    if after < 0:
        return settings.learning_rate * (step + 1) / (settings.warmup_steps + 1)
    match settings.schedule:
        case "constant":
            factor = 1.0
        case "cosine":
            factor = 0.5 + 0.5 * math.cos(math.pi * after / max(1, total_steps - settings.warmup_steps))
        case "halve":
            factor = 0.5 ** (after // settings.halve_every)
    return settings.learning_rate * factor
