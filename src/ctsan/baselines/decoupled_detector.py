"""A detector trained before the language model and then frozen: Decoupled CT-SAN (appendix C.1)."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from ctsan.model.concept_detector import ConceptDetector, ConceptSource, Detection, RegionReducer


class DecoupledDetector(ConceptSource):
    """Frozen traces with their own frozen region reducer."""

    channel_means: Tensor
    channel_scales: Tensor

    def __init__(
        self, *, channels: int, hidden_dim: int, region_kernel: int, detector: ConceptDetector
    ) -> None:
        super().__init__()
        self.reduce = RegionReducer(channels=channels, hidden_dim=hidden_dim, kernel=region_kernel)
        self.detector = detector
        self.register_buffer("channel_means", torch.zeros(channels))
        self.register_buffer("channel_scales", torch.ones(channels))
        self.requires_grad_(requires_grad=False)
        self.train(mode=False)

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002  # it is never trained here
        """Stay in evaluation mode, without dropout."""
        return super().train(mode=False)

    @torch.no_grad()
    def init_from(
        self, *, reduce: RegionReducer, detector: ConceptDetector, means: Tensor, scales: Tensor
    ) -> None:
        """Copy a trained detector, its region reducer and its channel statistics."""
        self.reduce.load_state_dict(reduce.state_dict())
        self.detector.load_state_dict(detector.state_dict())
        self.channel_means.copy_(means)
        self.channel_scales.copy_(scales)

    @torch.no_grad()
    def forward(self, maps: Tensor, frame_is_real: Tensor) -> Detection:
        """Maps (B, N, h, w, C) as they are stored."""
        regions = self.reduce((maps - self.channel_means) / self.channel_scales)
        detection: Detection = self.detector(regions, frame_is_real)
        return detection
