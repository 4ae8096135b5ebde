"""Concept words without spatial attention: the paper's no-ATT-SAN (appendix C.1)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.concept_detector import Detection, LearntConceptSource
from ctsan.model.lstm import LayerNormLSTM


class AverageDetector(LearntConceptSource):
    """One LSTM over grid-averaged frames replaces all traces.

    Args:
        lr_scale, memory: see `ConceptDetector`.
    """

    def __init__(
        self,
        *,
        hidden_dim: int,
        num_candidates: int,
        num_layers: int = 2,
        dropout: float = 0.2,
        lr_scale: float = 1.0,
        memory: int = 4,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.lr_scale = lr_scale
        self.lstm = LayerNormLSTM(
            input_dim=hidden_dim, hidden_dim=hidden_dim, num_layers=num_layers, dropout=dropout, memory=memory
        )
        self.name = nn.Linear(hidden_dim, num_candidates)  # W_p, b_p
        nn.init.xavier_uniform_(self.name.weight)
        nn.init.zeros_(self.name.bias)

    def forward(self, regions: Tensor, frame_is_real: Tensor) -> Detection:
        """Regions (B, N, D, h, w) to a detection with uniform attention."""
        batch, frames, _, height, width = regions.shape
        last = self.lstm(regions.mean(dim=(3, 4)), is_real=frame_is_real)[1].top  # h_N, (B, D)
        scores = self.name(F.dropout(last, self.dropout, self.training))
        everywhere = regions.new_full((batch, frames, 1, height, width), 1 / (height * width))
        return Detection(scores, everywhere, last[:, None])
