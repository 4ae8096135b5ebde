"""Equations 8 to 13 against plain NumPy, and the decoder without its attentions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ctsan.model.caption_decoder import CaptionDecoder
from ctsan.model.lstm import State
from worked_out import attended_input, attended_output, draw, lstm, numbers, stirred

B, T, K, E, D, WORDS = 2, 4, 3, 5, 6, 9


def test_the_decoder_is_equations_8_to_13_from_the_video_encoders_state() -> None:
    decode = stirred(CaptionDecoder(num_words=WORDS, embedding_dim=E, hidden_dim=D))
    words, concepts = draw(B, T, E), draw(B, K, E, seed=1)
    start = State(draw(2, B, D, seed=2), draw(2, B, D, seed=3))
    decoded, _ = decode(words, concepts, start)
    w = numbers(decode)
    for b in range(B):
        a = concepts[b].numpy()
        read = [attended_input(w, word, a)[0] for word in words[b].numpy()]
        states = lstm(w, "lstm", read, start.hidden[:, b].numpy(), start.cell[:, b].numpy())
        for t, state in enumerate(states):
            scores = w["say.weight"] @ attended_output(w, state, a)[0] + w["say.bias"]
            np.testing.assert_allclose(decoded.scores[b, t].detach().numpy(), scores, rtol=1e-6)


@pytest.mark.parametrize(
    ("with_input", "with_output"), [(True, True), (True, False), (False, True), (False, False)]
)
def test_each_attention_can_be_left_out(with_input: bool, with_output: bool) -> None:
    torch.manual_seed(0)
    decode = CaptionDecoder(
        num_words=WORDS,
        embedding_dim=E,
        hidden_dim=D,
        input_attention=with_input,
        output_attention=with_output,
        dropout=0.0,
    ).double()
    words, concepts = draw(B, T, E), draw(B, K, E, seed=1)
    start = State(draw(2, B, D, seed=2), draw(2, B, D, seed=3))
    decoded, _ = decode(words, concepts, start)
    assert decoded.scores.shape == (B, T, WORDS)
    assert (decoded.input_weights is not None) == with_input
    assert (decoded.output_weights is not None) == with_output
    changed = decode(words, concepts + 1, start)[0].scores
    assert torch.equal(changed, decoded.scores) == (not with_input and not with_output)
    # A word says nothing of the words before it.
    words[:, -1] += 1
    again = decode(words, concepts, start)[0].scores
    torch.testing.assert_close(again[:, :-1], decoded.scores[:, :-1])
    assert not torch.equal(again[:, -1], decoded.scores[:, -1])
