"""Fill-in-the-blank against section 3.2 in plain NumPy, and what it promises of padding and attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ctsan.model.blank_model import BlankModel
from worked_out import (
    WORDS,
    D,
    K,
    T,
    attended_input,
    attended_output,
    encode,
    lstm,
    numbers,
    small_clip_encoder,
    stirred,
    trained_by,
)

BLANK = 1
LENGTHS = [5, 3, 4]
PLACES = torch.tensor([2, 0, 3])
SENTENCES = torch.tensor([[4, 9, BLANK, 3, 7], [BLANK, 6, 5, 0, 0], [2, 10, 3, BLANK, 0]])
CLIPS = [0, 1, 1]
IS_REAL = torch.arange(T) < torch.tensor(LENGTHS)[:, None]


def small_model(*, with_detector: bool = True, weighted: bool = False, **options: bool) -> BlankModel:
    torch.manual_seed(0)
    encoder = small_clip_encoder(with_detector=with_detector, weighted=weighted)
    return stirred(BlankModel(clip_encoder=encoder, hidden_dim=D, **options))


def test_scores_and_weights_are_those_of_the_equations() -> None:
    model = small_model()
    encoding = encode(model.clip_encoder, CLIPS)
    filled = model(SENTENCES, IS_REAL, PLACES, encoding)
    assert filled.input_weights.shape == (3, T, K)
    assert filled.output_weights.shape == (3, 1, K)
    w = numbers(model)
    for row, (length, t) in enumerate(zip(LENGTHS, PLACES.tolist(), strict=True)):
        a = encoding.concepts[row].detach().numpy()
        hidden, cell = (part[:, row].detach().numpy() for part in encoding.state)
        words = w["clip_encoder.embedding.weight"][SENTENCES[row, :length].tolist()]
        x, gamma = zip(*(attended_input(w, word, a) for word in words), strict=True)
        forwards = lstm(w, "read_forwards", list(x), hidden, cell)[t]  # from the first word to the blank
        backwards = lstm(w, "read_backwards", list(x[::-1]), hidden, cell)[length - 1 - t]  # from the last
        o = np.tanh(w["join.weight"] @ np.concatenate([forwards, backwards]) + w["join.bias"])
        p, beta = attended_output(w, o, a)
        scores = w["say.weight"] @ p + w["say.bias"]
        np.testing.assert_allclose(filled.input_weights[row, :length].detach().numpy(), gamma, atol=1e-9)
        np.testing.assert_allclose(filled.output_weights[row, 0].detach().numpy(), beta, atol=1e-9)
        np.testing.assert_allclose(filled.scores[row].detach().numpy(), scores, atol=1e-9)


def test_padding_changes_nothing() -> None:
    model = small_model()
    encoding = encode(model.clip_encoder, CLIPS)
    scores = model(SENTENCES, IS_REAL, PLACES, encoding).scores
    noise = torch.where(IS_REAL, SENTENCES, torch.tensor(8))
    torch.testing.assert_close(model(noise, IS_REAL, PLACES, encoding).scores, scores, rtol=0, atol=0)
    for row, length in enumerate(LENGTHS):
        here = slice(row, row + 1)
        alone = model(
            SENTENCES[here, :length], IS_REAL[here, :length], PLACES[here], encoding.of(torch.tensor([row]))
        )
        torch.testing.assert_close(alone.scores, scores[here])


@pytest.mark.parametrize("changed", [0, 4])
def test_words_on_either_side_of_the_blank_have_a_say(changed: int) -> None:
    model = small_model()
    encoding = encode(model.clip_encoder, CLIPS)
    other = SENTENCES.clone()
    other[0, changed] = 5
    scores, again = (model(words, IS_REAL, PLACES, encoding).scores for words in (SENTENCES, other))
    assert (scores[0] - again[0]).abs().min() > 1e-6
    torch.testing.assert_close(again[1:], scores[1:], rtol=0, atol=0)


def loss_of(model: BlankModel) -> Tensor:
    encoding = encode(model.clip_encoder, CLIPS)
    return F.cross_entropy(model(SENTENCES, IS_REAL, PLACES, encoding).scores, torch.tensor([3, 8, 5]))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_trains_everything_and_the_detector_only_through_weighted_concepts(weighted: bool) -> None:
    model = small_model(weighted=weighted)
    every = {name for name, _ in model.named_parameters()}
    detector = {name for name in every if name.startswith("clip_encoder.detector.")}
    assert trained_by(model, loss_of(model)) == (every if weighted else every - detector)


@pytest.mark.parametrize(
    ("with_input", "with_output"), [(True, True), (True, False), (False, True), (False, False)]
)
def test_each_attention_can_be_left_out(with_input: bool, with_output: bool) -> None:
    model = small_model(input_attention=with_input, output_attention=with_output)
    encoding = encode(model.clip_encoder, CLIPS)
    filled = model(SENTENCES, IS_REAL, PLACES, encoding)
    assert (filled.input_weights is not None) == with_input
    assert (filled.output_weights is not None) == with_output
    changed = model(SENTENCES, IS_REAL, PLACES, encoding._replace(concepts=encoding.concepts + 1))
    assert torch.equal(changed.scores, filled.scores) == (not with_input and not with_output)


def test_without_a_detector_the_clip_still_counts() -> None:
    model = small_model(with_detector=False)
    filled = model(SENTENCES, IS_REAL, PLACES, encode(model.clip_encoder, CLIPS))
    assert filled.scores.shape == (3, WORDS)
    assert filled.input_weights is None
    assert filled.output_weights is None
    other = model(SENTENCES, IS_REAL, PLACES, encode(model.clip_encoder, [1, 0, 0]))
    assert not torch.allclose(other.scores, filled.scores)
    assert trained_by(model, loss_of(model)) == {name for name, _ in model.named_parameters()}
