"""The video encoding LSTM (eq. 7): frames to the initial state of the language models."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.lstm import LayerNormLSTM, State


def mean_over_frames(frames: Tensor, frame_is_real: Tensor) -> Tensor:
    """The mean (B, D) of the real ones of frames (B, N, D)."""
    return (frames * frame_is_real[..., None]).sum(dim=1) / frame_is_real.sum(dim=1, keepdim=True)


class NoVideo(nn.Module):
    """No video input: a control for what the language model predicts from words alone."""

    def __init__(self, *, hidden_dim: int, num_layers: int = 2) -> None:
        super().__init__()
        self.hidden_dim, self.num_layers = hidden_dim, num_layers

    def forward(self, regions: Tensor, frame_is_real: Tensor) -> State:
        """The zero state for every clip."""
        nothing = regions.new_zeros(self.num_layers, len(frame_is_real), self.hidden_dim)
        return State(nothing, nothing)


class VideoEncoder(nn.Module):
    """An LSTM over the average-pooled frames. Its last state s_N stands for the clip (eq. 7).

    Args:
        memory: see `LayerNormLSTM`.
    """

    def __init__(
        self, *, hidden_dim: int, num_layers: int = 2, dropout: float = 0.2, memory: int = 4
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.lstm = LayerNormLSTM(
            input_dim=hidden_dim,
            hidden_dim=hidden_dim,
            num_layers=num_layers,
            dropout=dropout,
            memory=memory,
        )

    def forward(self, regions: Tensor, frame_is_real: Tensor) -> State:
        """Regions (B, N, D, h, w), averaged over the grid, to s_N, the state after the last real frame."""
        averages = F.dropout(regions.mean(dim=(3, 4)), self.dropout, self.training)  # (B, N, D)
        state: State = self.lstm(averages, is_real=frame_is_real)[1]
        return state
