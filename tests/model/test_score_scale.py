"""Scores brought to one scale, in both models that score pairs."""

from __future__ import annotations

import pytest
import torch

from ctsan.model.choice_model import ChoiceModel
from ctsan.model.retrieval_model import RetrievalModel
from worked_out import D, draw, small_clip_encoder

Model = RetrievalModel | ChoiceModel


def small_model(kind: type[Model]) -> Model:
    return kind(clip_encoder=small_clip_encoder(), hidden_dim=D)


@pytest.mark.parametrize("kind", [RetrievalModel, ChoiceModel])
def test_scores_of_a_known_scale_have_mean_0_and_spread_1(kind: type[Model]) -> None:
    model, scores = small_model(kind), (7 + 3 * draw(4, 5)).float()
    assert torch.equal(model.standardise(scores), scores)
    model.calibrate_scale(scores)
    standard = model.standardise(scores)
    assert standard.mean().item() == pytest.approx(0, abs=1e-5)
    assert standard.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    assert torch.equal(standard.argsort(dim=1), scores.argsort(dim=1))


@pytest.mark.parametrize("scores", [torch.full((2, 3), 4.1), torch.tensor([[4.1]])])
def test_scores_that_are_all_the_same_become_0(scores: torch.Tensor) -> None:
    model = small_model(ChoiceModel)
    model.calibrate_scale(scores)
    torch.testing.assert_close(model.standardise(scores), torch.zeros_like(scores), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [RetrievalModel, ChoiceModel])
def test_the_scale_is_saved_with_the_weights(kind: type[Model]) -> None:
    model, other = small_model(kind), small_model(kind)
    model.calibrate_scale(draw(10).float() - 2)
    other.load_state_dict(model.state_dict())
    scores = draw(3, seed=1).float()
    assert torch.equal(other.standardise(scores), model.standardise(scores))
    assert not torch.equal(other.standardise(scores), scores)
