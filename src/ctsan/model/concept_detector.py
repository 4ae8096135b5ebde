"""The concept word detector (section 2.2): traces follow regions through a clip and name what they saw.

Any language model can use it: feature maps go in, `Detection` comes out, and `concept_loss` is one more term
of the model's loss. `examples/foreign_model.py` shows it in a model that has nothing to do with the paper.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ctsan.model.lstm import LayerNormLSTM, LayerNormLSTMLayer


class Detection(NamedTuple):
    """What the detector found in a batch of clips."""

    scores: Tensor  # (B, V), of all candidates before the sigmoid
    attention: Tensor  # (B, N, L, h, w): where each trace looked; adds up to one over the grid
    states: Tensor  # (B, L, D): what each trace remembers at the end

    @property
    def confidences(self) -> Tensor:
        """p of eq. 5, (B, V)."""
        return self.scores.sigmoid()

    def top(self, num_concepts: int) -> tuple[Tensor, Tensor]:
        """The K surest candidates, the surest first, and their confidences, both (B, K)."""
        best = self.scores.topk(num_concepts, dim=1)
        return best.indices, best.values.sigmoid()


class RegionReducer(nn.Module):
    """Pooled maps of a backbone to regions of D numbers, by a convolution (section 2.1; there 3x3)."""

    def __init__(self, *, channels: int, hidden_dim: int, kernel: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, hidden_dim, kernel, padding=kernel // 2, bias=False)
        nn.init.xavier_uniform_(self.conv.weight)

    def forward(self, maps: Tensor) -> Tensor:
        """(B, N, h, w, C) to (B, N, D, h, w)."""
        flat = self.conv(maps.flatten(0, 1).movedim(-1, 1))  # (B N, D, h, w)
        regions: Tensor = flat.reshape(*maps.shape[:2], *flat.shape[1:])
        return regions


class TraceAttention(nn.Module):
    """Where each trace looks next, from what it remembers: softmax(Conv(v ⊙ h)) (eqs. 3 and 4).

    The first convolution sees v ⊙ h, and v is the same for all traces. Σ_d W[a,d] * (v[d] h[d]) is
    Σ_d h[d] (W[a,d] * v[d]), where * convolves over the grid: so W is convolved with v once a frame, and each
    trace costs a matrix product, a ninth of its convolution. `forward_plainly` is the same, as printed.
    """

    def __init__(self, *, hidden_dim: int, attention_dim: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(hidden_dim, attention_dim, 3, padding=1, bias=False)
        self.first_bias = nn.Parameter(torch.zeros(attention_dim, 1, 1))
        self.second = nn.Conv2d(attention_dim, 1, 3, padding=1, bias=False)  # softmax ignores a bias
        nn.init.xavier_uniform_(self.first.weight)
        nn.init.xavier_uniform_(self.second.weight)

    def forward(self, regions: Tensor, hidden: Tensor) -> Tensor:
        """Regions of one frame (B, D, h, w) and states of the traces (B, L, D) to weights (B, L, h, w)."""
        batch, dim, height, width = regions.shape
        patches = F.unfold(regions, 3, padding=1).view(batch, dim, 9, -1)  # (B, D, 9, P)
        kernels = self.first.weight.flatten(2).movedim(1, 0)  # (D, A, 9)
        shared = kernels @ patches  # (B, D, A, P)
        inner = hidden @ shared.flatten(2)  # (B, L, A P)
        return self._weights(inner.view(*hidden.shape[:2], -1, height, width))

    def forward_plainly(self, regions: Tensor, hidden: Tensor) -> Tensor:
        products = regions[:, None] * hidden[..., None, None]  # (B, L, D, h, w)
        inner = self.first(products.flatten(0, 1))  # (B L, A, h, w)
        return self._weights(inner.view(*hidden.shape[:2], *inner.shape[1:]))

    def _weights(self, inner: Tensor) -> Tensor:
        """(B, L, A, h, w) to (B, L, h, w)."""
        scores = self.second((inner + self.first_bias).flatten(0, 1).relu())  # (B L, 1, h, w)
        weights: Tensor = scores.flatten(1).softmax(dim=1).view(*inner.shape[:2], *inner.shape[3:])
        return weights


class ConceptDetector(nn.Module):
    """L tracing LSTMs with shared parameters, one for each cell of the grid, that raise words together."""

    def __init__(
        self,
        *,
        hidden_dim: int,
        grid: tuple[int, int],
        num_candidates: int,
        attention_dim: int,
        num_layers: int = 2,
        dropout: float = 0.2,
        recompute_attention: bool = False,
    ) -> None:
        super().__init__()
        self.num_traces = grid[0] * grid[1]
        self.dropout = dropout
        self.recompute_attention = recompute_attention
        self.attend = TraceAttention(hidden_dim=hidden_dim, attention_dim=attention_dim)
        self.trace = LayerNormLSTM(
            input_dim=hidden_dim, hidden_dim=hidden_dim, num_layers=num_layers, dropout=dropout
        )
        self.name = nn.Linear(self.num_traces * hidden_dim, num_candidates)  # W_p, b_p
        nn.init.xavier_uniform_(self.name.weight)
        nn.init.zeros_(self.name.bias)

    def forward(self, regions: Tensor, frame_is_real: Tensor) -> Detection:
        """Follow regions (B, N, D, h, w) through the frames; padding changes nothing.

        Args:
            frame_is_real: (B, N), True where a frame is not padding; the first frame of a clip always is.
        """
        batch, _, _, height, width = regions.shape
        first_layer = self.trace.layers[0]
        assert isinstance(first_layer, LayerNormLSTMLayer)
        # A trace's input is a mean of cells, and so is its linear map: cells are mapped once for all traces.
        mapped = first_layer.from_input(regions.flatten(3).mT)  # (B, N, P, 4 D)
        state = self.trace.initial(batch * self.num_traces, regions)
        one_hot = torch.eye(self.num_traces, dtype=regions.dtype, device=regions.device)
        weights = one_hot.view(1, self.num_traces, height, width).expand(batch, -1, -1, -1)
        attention = []
        for number, (frame, cells) in enumerate(zip(regions.unbind(1), mapped.unbind(1), strict=True)):
            if number:
                hidden = state.top.view(batch, self.num_traces, -1)  # (B, L, D)
                weights = self._attend(frame, hidden)  # eqs. 3 and 4
            context = first_layer.norm_input(weights.flatten(2) @ cells)  # eq. 1, (B, L, 4 D)
            after = self.trace.step(context.flatten(0, 1), state, is_projected=True)  # eq. 2
            here = frame_is_real[:, number].repeat_interleave(self.num_traces)[None, :, None]
            state = type(state)(
                torch.where(here, after.hidden, state.hidden), torch.where(here, after.cell, state.cell)
            )
            attention.append(weights)
        states = state.top.view(batch, self.num_traces, -1)  # (B, L, D)
        last = F.dropout(states.flatten(1), self.dropout, self.training)
        return Detection(self.name(last), torch.stack(attention, dim=1), states)  # eq. 5

    def shares(self, states: Tensor, concepts: Tensor) -> Tensor:
        """What each trace adds to the score of a concept: states (B, L, D), concepts (B, K) to (B, K, L)."""
        rows = self.name.weight[concepts].view(*concepts.shape, self.num_traces, -1)  # (B, K, L, D)
        return torch.einsum("bkld,bld->bkl", rows, states)

    def _attend(self, frame: Tensor, hidden: Tensor) -> Tensor:
        if self.recompute_attention and torch.is_grad_enabled():
            # What all traces share is D times the size of a frame: it is made again for the backward pass.
            weights: Tensor = checkpoint(self.attend, frame, hidden, use_reentrant=False)
            return weights
        return self.attend(frame, hidden)  # type: ignore[no-any-return]


def concept_loss(scores: Tensor, reference: Tensor) -> Tensor:
    """Sigmoid cross-entropy over the candidates for every clip, (B,) (eq. 6).

    Args:
        reference: (B, V), p*: 1 where a word is in the clip's captions.
    """
    return F.binary_cross_entropy_with_logits(scores, reference, reduction="none").mean(dim=1)
