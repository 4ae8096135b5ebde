"""Multiple choice against appendix A.1 in plain NumPy, and what it promises of padding and choices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from ctsan.model.choice_model import ChoiceModel, margin_loss
from worked_out import (
    D,
    K,
    T,
    attended_input,
    draw,
    encode,
    lstm,
    numbers,
    small_clip_encoder,
    stirred,
    trained_by,
)

LENGTHS = [5, 3, 4, 1]
CHOICES = torch.tensor([[4, 9, 2, 3, 7], [8, 6, 5, 0, 0], [2, 10, 3, 6, 0], [9, 0, 0, 0, 0]])
CLIPS = [0, 0, 1, 1]  # two choices a clip
IS_REAL = torch.arange(T) < torch.tensor(LENGTHS)[:, None]


def small_model(*, with_detector: bool = True, weighted: bool = False, **options: bool) -> ChoiceModel:
    torch.manual_seed(2)  # with other units of the ReLU at work in each sentence
    encoder = small_clip_encoder(with_detector=with_detector, weighted=weighted)
    return stirred(ChoiceModel(clip_encoder=encoder, hidden_dim=D, **options))


def test_scores_and_weights_are_those_of_the_equations() -> None:
    model = small_model()
    encoding = encode(model.clip_encoder, CLIPS)
    scored = model(CHOICES, IS_REAL, encoding)
    assert scored.input_weights.shape == (4, T, K)
    w = numbers(model)
    for row, length in enumerate(LENGTHS):
        a = encoding.concepts[row].detach().numpy()
        hidden, cell = (part[:, row].detach().numpy() for part in encoding.state)
        words = w["clip_encoder.embedding.weight"][CHOICES[row, :length].tolist()]
        x, gamma = zip(*(attended_input(w, word, a) for word in words), strict=True)
        last = lstm(w, "lstm", list(x), hidden, cell)[-1]
        score = w["rate.weight"][0] @ np.maximum(w["align.weight"] @ last + w["align.bias"], 0)
        np.testing.assert_allclose(scored.input_weights[row, :length].detach().numpy(), gamma, atol=1e-9)
        assert scored.scores[row].item() == pytest.approx(score, abs=1e-9)


def test_padding_changes_nothing() -> None:
    model = small_model()
    encoding = encode(model.clip_encoder, CLIPS)
    scores = model(CHOICES, IS_REAL, encoding).scores
    noise = torch.where(IS_REAL, CHOICES, torch.tensor(8))
    torch.testing.assert_close(model(noise, IS_REAL, encoding).scores, scores, rtol=0, atol=0)
    for row, length in enumerate(LENGTHS):
        alone = model(
            CHOICES[row : row + 1, :length],
            IS_REAL[row : row + 1, :length],
            encoding.of(torch.tensor([row])),
        )
        torch.testing.assert_close(alone.scores, scores[row : row + 1])


def test_the_loss_is_that_of_the_paper_without_the_answer_itself() -> None:
    scores, answer = 2 * draw(4, 5), [3, 0, 4, 2]
    wanted = [
        sum(max(0.0, float(row[other] - row[right]) + 1.5) for other in range(5) if other != right)
        for row, right in zip(scores, answer, strict=True)
    ]
    np.testing.assert_allclose(margin_loss(scores, torch.tensor(answer), margin=1.5).numpy(), wanted)


def test_choices_beyond_the_margin_cost_and_train_nothing() -> None:
    scores = torch.tensor([[0.1, 1.2, -3.0], [0.5, 0.0, 0.4]], requires_grad=True)
    loss = margin_loss(scores, torch.tensor([1, 0]))
    torch.testing.assert_close(loss, torch.tensor([0.0, 0.5 + 0.9]))
    torch.autograd.backward(loss.sum())
    torch.testing.assert_close(scores.grad, torch.tensor([[0.0, 0.0, 0.0], [-2.0, 1.0, 1.0]]))


def loss_of(model: ChoiceModel) -> Tensor:
    scores = model(CHOICES, IS_REAL, encode(model.clip_encoder, CLIPS)).scores.view(2, 2)
    return margin_loss(scores, torch.tensor([0, 1]), margin=100.0).mean()


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_trains_everything_and_the_detector_only_through_weighted_concepts(weighted: bool) -> None:
    model = small_model(weighted=weighted)
    every = {name for name, _ in model.named_parameters()}
    detector = {name for name in every if name.startswith("clip_encoder.detector.")}
    assert trained_by(model, loss_of(model)) == (every if weighted else every - detector)


@pytest.mark.parametrize("with_input", [True, False])
def test_attention_can_be_left_out(with_input: bool) -> None:
    model = small_model(input_attention=with_input)
    encoding = encode(model.clip_encoder, CLIPS)
    scored = model(CHOICES, IS_REAL, encoding)
    assert (scored.input_weights is not None) == with_input
    changed = model(CHOICES, IS_REAL, encoding._replace(concepts=encoding.concepts + 1))
    assert torch.equal(changed.scores, scored.scores) == (not with_input)


def test_without_a_detector_the_clip_still_counts() -> None:
    model = small_model(with_detector=False)
    scored = model(CHOICES, IS_REAL, encode(model.clip_encoder, CLIPS))
    assert scored.scores.shape == (4,)
    assert scored.input_weights is None
    other = model(CHOICES, IS_REAL, encode(model.clip_encoder, [1, 1, 0, 0]))
    assert (other.scores - scored.scores).abs().min() > 1e-6
    assert trained_by(model, loss_of(model)) == {name for name, _ in model.named_parameters()}
