"""What the LSTMs read: equations 9 and 10, or W_x alone."""

from __future__ import annotations

import numpy as np
import torch

from ctsan.model.word_input import WordInput
from worked_out import B, D, E, K, T, attended_input, draw, numbers, stirred


def small_input(*, attention: bool) -> WordInput:
    torch.manual_seed(0)
    return stirred(WordInput(embedding_dim=E, hidden_dim=D, attention=attention))


def test_with_attention_it_is_equations_9_and_10() -> None:
    word_input = small_input(attention=True)
    words, concepts = draw(B, T, E), draw(B, K, E, seed=1)
    x, weights = word_input(words, concepts)
    w = {f"word_input.{name}": value for name, value in numbers(word_input).items()}
    for b, t in np.ndindex(B, T):
        wanted, gamma = attended_input(w, words[b, t].numpy(), concepts[b].numpy())
        np.testing.assert_allclose(x[b, t].detach().numpy(), wanted)
        np.testing.assert_allclose(weights[b, t].detach().numpy(), gamma)


def test_without_attention_words_are_projected_and_concepts_do_not_matter() -> None:
    word_input = small_input(attention=False)
    words = draw(B, T, E)
    x, weights = word_input(words, draw(B, 0, E))
    assert weights is None
    w = numbers(word_input)
    assert set(w) == {"project.weight"}
    for b, t in np.ndindex(B, T):
        np.testing.assert_allclose(x[b, t].detach().numpy(), w["project.weight"] @ words[b, t].numpy())
