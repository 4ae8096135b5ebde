"""Equation 7 against plain NumPy."""

from __future__ import annotations

import numpy as np
import torch

from ctsan.model.video_encoder import VideoEncoder
from worked_out import draw, lstm, numbers, stirred

B, T, D = 2, 4, 6


def test_the_video_encoder_is_equation_7_over_grid_averages() -> None:
    encode = stirred(VideoEncoder(hidden_dim=D))
    regions, lengths = draw(B, T, D, 2, 2), [4, 3]
    is_real = torch.tensor([[step < length for step in range(T)] for length in lengths])
    state = encode(regions, is_real)
    nothing = np.zeros((2, D))
    for b, length in enumerate(lengths):
        averages = [regions[b, n].numpy().mean(axis=(1, 2)) for n in range(length)]
        wanted = lstm(numbers(encode), "lstm", averages, nothing, nothing)[-1]
        np.testing.assert_allclose(state.top[b].detach().numpy(), wanted, rtol=1e-6)
