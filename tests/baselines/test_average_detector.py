"""no-ATT-SAN (appendix C.1) against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ctsan.baselines.average_detector import AverageDetector
from ctsan.model.concept_detector import concept_loss
from worked_out import draw, lstm, numbers, sigmoid, stirred

B, N, D, H, W, V = 2, 4, 6, 2, 3, 7
LENGTHS = [4, 2]


@pytest.mark.parametrize("layers", [1, 2])
def test_confidences_come_from_the_last_state_of_one_lstm_over_average_pooled_frames(layers: int) -> None:
    """h_n = LSTM(mean of v_n, h_{n-1}); p = σ(W_p h_N + b_p). Frames beyond a clip's length are padding."""
    torch.manual_seed(0)
    detect = stirred(AverageDetector(hidden_dim=D, num_candidates=V, num_layers=layers))
    regions = draw(B, N, D, H, W)
    is_real = torch.arange(N) < torch.tensor(LENGTHS)[:, None]
    found = detect(regions, is_real)
    w, nothing = numbers(detect), np.zeros((layers, D))
    for b, length in enumerate(LENGTHS):
        averages = [regions[b, n].numpy().mean(axis=(1, 2)) for n in range(length)]
        last = lstm(w, "lstm", averages, nothing, nothing)[-1]
        p = sigmoid(w["name.weight"] @ last + w["name.bias"])
        np.testing.assert_allclose(found.confidences[b].detach().numpy(), p, atol=1e-9)
        np.testing.assert_allclose(found.states[b, 0].detach().numpy(), last, atol=1e-9)
    np.testing.assert_allclose(found.attention.numpy(), 1 / (H * W))  # no place is preferred


def test_one_lstm_over_averages_learns_words_and_sees_no_place() -> None:
    torch.manual_seed(0)
    detector = AverageDetector(hidden_dim=D, num_candidates=V).eval()
    regions = torch.randn(B, N, D, H, W)
    real = torch.ones(B, N, dtype=torch.bool)
    detection = detector(regions, real)
    more = torch.cat([regions, torch.ones(B, 1, D, H, W)], dim=1)
    with_padding = detector(more, torch.cat([real, ~real[:, :1]], dim=1))
    assert torch.allclose(with_padding.scores, detection.scores, atol=1e-6)
    assert torch.allclose(detector(regions.flip(-1), real).scores, detection.scores, atol=1e-5)
    assert not torch.allclose(detector(regions.flip(1), real).scores, detection.scores, atol=1e-3)
    torch.autograd.backward(concept_loss(detection.scores, torch.ones(B, V)).sum())
    assert all(weights.grad is not None for weights in detector.parameters())
