"""Averaged weights: what the mean is, and that evaluation sees it and training does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ctsan.config import load_settings
from ctsan.runs.checkpoint import load_weights
from ctsan.runs.run_folder import CHECKPOINT_FILE
from ctsan.runs.weights import WEIGHTS_FILE
from ctsan.training.ema import AveragedWeights
from ctsan.training.loop import train_loop
from training.stand_in import StandIn


def test_the_mean_is_the_one_worked_out_by_hand() -> None:
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(0.0)
    average = AveragedWeights(model, 0.5)
    mean = 0.0
    for step, value in enumerate([4.0, -2.0, 8.0]):
        model.weight.data.fill_(value)
        average.update(step)
        decay = min(0.5, (step + 1) / (step + 10))
        mean = decay * mean + (1 - decay) * value
    assert average.mean["weight"].item() == pytest.approx(mean)


def test_the_model_has_the_mean_for_a_while_and_then_its_own_weights_again() -> None:
    model = nn.Linear(3, 3)
    average = AveragedWeights(model, 0.9)
    before = model.weight.detach().clone()
    average.mean["weight"].fill_(7.0)
    with average.in_place():
        assert model.weight.eq(7.0).all()
    assert torch.equal(model.weight, before)
    assert average.mean["weight"].eq(7.0).all()


def test_frozen_weights_have_no_mean() -> None:
    assert "frozen" not in AveragedWeights(StandIn().model, 0.9).mean


def test_what_is_evaluated_and_kept_is_the_mean_and_training_does_not_notice(tmp_path: Path) -> None:
    def trained(folder: str, averaging: float) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        settings = load_settings("paper", ["training.epochs=2", f"optimiser.ema_decay={averaging}"])
        task = StandIn(scores=[0.0, 1.0])
        train_loop(task, tmp_path / folder, optimiser=settings.optimiser, training=settings.training)
        last = {name: weights.detach().clone() for name, weights in task.model.named_parameters()}
        assert (tmp_path / folder / CHECKPOINT_FILE).exists()
        load_weights(tmp_path / folder / WEIGHTS_FILE, task.model)
        return last, dict(task.model.named_parameters())

    last_plain, kept_plain = trained("plain", 0.0)
    last, kept = trained("averaged", 0.9)
    assert all(torch.equal(last[name], last_plain[name]) for name in last)
    assert all(torch.equal(last_plain[name], kept_plain[name]) for name in last)
    assert not torch.equal(kept["inner.weight"], last["inner.weight"])
