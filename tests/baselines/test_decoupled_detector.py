"""Decoupled CT-SAN: a detector that was trained alone."""

from __future__ import annotations

import torch
from torch import Tensor

from baselines.small_clips import C, H, all_real
from ctsan.baselines.decoupled_detector import DecoupledDetector
from ctsan.model.concept_detector import ConceptDetector, RegionReducer

D, V = 8, 12


def test_a_decoupled_detector_says_what_the_trained_one_says_and_never_learns(maps: Tensor) -> None:
    torch.manual_seed(1)
    reduce = RegionReducer(channels=C, hidden_dim=D)
    trained = ConceptDetector(hidden_dim=D, grid=(H, H), num_candidates=V, attention_dim=4).eval()
    fresh = ConceptDetector(hidden_dim=D, grid=(H, H), num_candidates=V, attention_dim=4)
    decoupled = DecoupledDetector(channels=C, hidden_dim=D, region_kernel=3, detector=fresh)
    means, scales = torch.arange(C).float(), torch.full((C,), 2.0)
    decoupled.init_from(reduce=reduce, detector=trained, means=means, scales=scales)
    decoupled.train()
    detection = decoupled(maps, all_real(maps))
    expected = trained(reduce((maps - means) / scales), all_real(maps))
    assert torch.allclose(detection.scores, expected.scores, atol=1e-6)  # without dropout, too
    assert not detection.scores.requires_grad
    assert not any(weights.requires_grad for weights in decoupled.parameters())
