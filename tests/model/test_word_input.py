"""What the LSTMs read: equations 9 and 10, or W_x alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

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


@pytest.mark.parametrize("attention", [True, False])
def test_the_table_holds_the_inputs_of_all_words_beside_all_clips(attention: bool) -> None:
    word_input, then = small_input(attention=attention), nn.Linear(D, 7, bias=False).double()
    words, concepts = draw(5, E), draw(6, E, seed=1)
    of_clips = torch.tensor([[0, 4, 2], [5, 1, 4]])
    with torch.no_grad():
        inputs = word_input.table(words, concepts, then).beside(of_clips).expand(5, 2, 7)
        x, _ = word_input(words.expand(2, 5, E), concepts[of_clips])
        torch.testing.assert_close(inputs, then(x).transpose(0, 1))
