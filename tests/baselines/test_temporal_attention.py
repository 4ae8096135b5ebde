"""Temporal attention against plain NumPy."""

from __future__ import annotations

import numpy as np
import torch

from baselines.decoders import LENGTHS, READ, B, C, D, H, N, reduced_frames, temporal
from worked_out import draw, lstm_step, numbers, softmax, stirred


def test_temporal_attention_weighs_all_frames_anew_before_each_word() -> None:
    """Yao et al.: e_i = wᵀ tanh(W_a h + U_a v_i + b_a), φ = Σ α_i v_i, U_p tanh(W_p [h, φ, y] + b_p) + d.

    The first state is tanh of a layer on the mean frame.
    """
    model = stirred(temporal())
    maps = draw(B, N, H, H, C)
    encoding = model.clip_encoder(maps, torch.arange(N) < torch.tensor(LENGTHS)[:, None])
    scores = model(READ, encoding).scores.detach().numpy()
    w = numbers(model)
    begin, decode = "clip_encoder.encode_video.begin.", "decode."
    for b, length in enumerate(LENGTHS):
        frames = reduced_frames(model, maps)[b, :length]
        start = np.tanh(w[begin + "weight"] @ frames.mean(axis=0) + w[begin + "bias"])
        hidden, cell = start[None, :D], start[None, D:]
        for t, word in enumerate(w["clip_encoder.embedding.weight"][READ[b].tolist()]):
            by_state = w[decode + "from_state.weight"] @ hidden[0] + w[decode + "from_state.bias"]
            energies = [
                w[decode + "weigh.weight"][0] @ np.tanh(by_state + w[decode + "from_frame.weight"] @ frame)
                for frame in frames
            ]
            phi = softmax(np.array(energies)) @ frames
            hidden, cell = lstm_step(w, "decode.lstm", np.concatenate([word, phi]), hidden, cell)
            joined = np.concatenate([hidden[0], phi, word])
            joined = np.tanh(w[decode + "join.weight"] @ joined + w[decode + "join.bias"])
            wanted = w[decode + "say.weight"] @ joined + w[decode + "say.bias"]
            np.testing.assert_allclose(scores[b, t], wanted, atol=1e-9)
