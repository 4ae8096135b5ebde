"""Equations 9 to 12 and 15 against plain NumPy: both semantic attentions and their regulariser."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from ctsan.model.semantic_attention import (
    InputSemanticAttention,
    OutputSemanticAttention,
    attention_regulariser,
)
from worked_out import draw, softmax

B, T, K, E, D = 2, 4, 3, 5, 6


def test_input_attention_is_equations_9_and_10() -> None:
    attend = InputSemanticAttention(embedding_dim=E, hidden_dim=D).double()
    torch.nn.init.normal_(attend.gate)
    words, concepts = draw(B, T, E), draw(B, K, E, seed=1)
    x, gamma = attend(words, concepts)
    w_gamma, w_x, gate = (p.detach().numpy() for p in (attend.relate, attend.project.weight, attend.gate))
    for b, t in itertools.product(range(B), range(T)):
        y, a = words[b, t].numpy(), concepts[b].numpy()
        weights = softmax(np.array([y @ w_gamma @ a[i] for i in range(K)]))
        np.testing.assert_allclose(gamma[b, t].detach().numpy(), weights)
        mixed = y + np.diag(gate) @ sum(weights[i] * a[i] for i in range(K))
        np.testing.assert_allclose(x[b, t].detach().numpy(), w_x @ mixed)


def test_output_attention_is_equations_11_and_12() -> None:
    attend = OutputSemanticAttention(embedding_dim=E, hidden_dim=D).double()
    torch.nn.init.normal_(attend.gate)
    hidden, concepts = draw(B, T, D), draw(B, K, E, seed=1)
    p, beta = attend(hidden, concepts)
    w_beta, gate = attend.relate.weight.detach().numpy(), attend.gate.detach().numpy()
    for b, t in itertools.product(range(B), range(T)):
        h, a = hidden[b, t].numpy(), np.tanh(concepts[b].numpy())
        weights = softmax(np.array([h @ w_beta @ a[i] for i in range(K)]))
        np.testing.assert_allclose(beta[b, t].detach().numpy(), weights)
        wanted = h + np.diag(gate) @ sum(weights[i] * (w_beta @ a[i]) for i in range(K))
        np.testing.assert_allclose(p[b, t].detach().numpy(), wanted)


def test_regulariser_is_equation_15_and_padding_has_no_part_in_it() -> None:
    weights = draw(B, T, K).softmax(dim=-1).requires_grad_()
    lengths = [4, 2]
    is_real = torch.tensor([[step < length for step in range(T)] for length in lengths])
    g = attention_regulariser(weights, is_real)
    for b, length in enumerate(lengths):
        a = weights[b, :length].detach().numpy()
        first = math.sqrt(sum(sum(a[t, i] for t in range(length)) ** 2 for i in range(K)))
        second = sum(math.sqrt(sum(a[t, i] for i in range(K))) for t in range(length)) ** 2
        assert g[b].item() == pytest.approx(first + second)
        assert second == pytest.approx(length**2)
    torch.autograd.backward(g.sum())
    assert weights.grad is not None
    assert weights.grad.isfinite().all()
    assert (weights.grad[1, 2:] == 0).all()


def test_what_is_no_word_gets_no_attention_and_breaks_no_gradient() -> None:
    torch.manual_seed(0)
    concepts = torch.randn(3, K, 4)
    concepts[0, 1:], concepts[1] = 0, 0  # one word, none, all
    words, states = torch.randn(3, 5, 4), torch.randn(3, 5, D)
    read, say = (
        InputSemanticAttention(embedding_dim=4, hidden_dim=D),
        OutputSemanticAttention(embedding_dim=4, hidden_dim=D),
    )
    x, gamma = read(words, concepts)
    said, beta = say(states, concepts)
    for weights in (gamma, beta):
        assert torch.equal(weights[0], torch.tensor([1.0, 0.0, 0.0]).expand(5, K))
        assert not weights[1].any()
        torch.testing.assert_close(weights[2].sum(dim=1), torch.ones(5))
    torch.testing.assert_close(x[1], read.project(words[1]))  # the word alone
    torch.testing.assert_close(said[1], states[1])
    alone, _ = read(words[:1], concepts[:1, :1])
    torch.testing.assert_close(x[:1], alone)
    regularised = attention_regulariser(gamma, torch.ones(3, 5, dtype=torch.bool))
    torch.testing.assert_close(regularised[:2], torch.tensor([5.0 + 25.0, 0.0]))
    torch.autograd.backward(regularised.sum() + x.sum() + said.sum() + beta.square().sum())
    for attention in (read, say):
        for name, weights in attention.named_parameters():
            assert weights.grad is not None, name
            assert weights.grad.isfinite().all(), name
