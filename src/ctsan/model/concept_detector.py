"""The concept word detector (section 2.2): traces follow regions through a clip and predict concept words.

Any language model can use it: it maps regions to a `Detection`, and `concept_loss` is an additional term of
the model's loss. `examples/foreign_model.py` shows it in a model that is unrelated to the paper.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ctsan.model.lstm import LayerNormLSTM, LayerNormLSTMLayer
from ctsan.model.recurrence import as_multiplied


class Detection(NamedTuple):
    """Output of a detector for a batch of clips."""

    scores: Tensor  # (B, V), logits of all candidates
    attention: Tensor  # (B, N, L, h, w), spatial attention of each trace; sums to one over the grid
    states: Tensor  # (B, L, D), final state of each trace
    probed: Tensor | None = None  # (B, V), the probe's scores, which `scores` include

    @property
    def confidences(self) -> Tensor:
        """p of eq. 5, (B, V)."""
        return self.scores.sigmoid()

    def of(self, clips: Tensor) -> Detection:
        """Select rows by clip index."""
        return Detection(*(None if part is None else part[clips] for part in self))  # type: ignore[arg-type]  # as they were

    def to(self, device: torch.device) -> Detection:
        return Detection(*(None if part is None else part.to(device) for part in self))  # type: ignore[arg-type]  # as they were


class ConceptSource(nn.Module):
    """A source of concept words: maps clips to a `Detection`. The paper's systems differ only in this part.

    A source that is not a `LearntConceptSource` reads the stored maps (B, N, h, w, C).

    Attributes:
        has_confidences: its scores are logits of probabilities, which can be compared with word frequencies.
    """

    has_confidences: ClassVar[bool] = True


class LearntConceptSource(ConceptSource):
    """A source that reads regions (B, N, D, h, w) and is trained jointly with the language model."""

    name: nn.Linear  # W_p, b_p


class RegionReducer(nn.Module):
    """Convolution from pooled backbone maps to regions of D channels (section 2.1; there 3x3)."""

    def __init__(self, *, channels: int, hidden_dim: int, kernel: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, hidden_dim, kernel, padding=kernel // 2, bias=False)
        nn.init.xavier_uniform_(self.conv.weight)

    @torch.no_grad()
    def init_from(self, directions: Tensor) -> None:
        """Initialise the first n filters as projections of each cell onto directions (n, C)."""
        weight = self.conv.weight  # (D, C, k, k)
        size, centre = weight.flatten(1).norm(dim=1).mean(), weight.shape[-1] // 2
        given = directions[: len(weight)]
        weight[: len(given)] = 0
        weight[: len(given), :, centre, centre] = given * size

    def forward(self, maps: Tensor) -> Tensor:
        """(B, N, h, w, C) to (B, N, D, h, w)."""
        flat = self.conv(maps.flatten(0, 1).movedim(-1, 1))  # (B N, D, h, w)
        regions: Tensor = flat.reshape(*maps.shape[:2], *flat.shape[1:])
        return regions


class TraceAttention(nn.Module):
    """Spatial attention of each trace, from its hidden state: softmax(Conv(v ⊙ h)) (eqs. 3 and 4).

    The input of the first convolution is v ⊙ h, where v is the same for all traces. With * for convolution
    over the grid, Σ_d W[a,d] * (v[d] h[d]) = Σ_d h[d] (W[a,d] * v[d]). So W is convolved with v once per
    frame, and each trace costs a matrix product, a ninth of its convolution. The second convolution is a
    matrix product too, because the grid is small. `forward_plainly` computes the formula as printed.
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
        return self.weigh(regions, hidden, *self.matrices(regions))

    def matrices(self, regions: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of both convolutions as matrices for `weigh`, for all frames: (D, 9, A) and (A P, P)."""
        height, width = regions.shape[-2:]
        first = self.first.weight.flatten(2).permute(1, 2, 0).contiguous()
        cells = torch.eye(height * width, dtype=first.dtype, device=first.device)
        is_neighbour = F.unfold(cells.view(-1, 1, height, width), 3, padding=1)  # (P, 9, P)
        second = torch.einsum("ak,qkp->aqp", self.second.weight[0].flatten(1), is_neighbour)
        return first, second.flatten(0, 1)

    def weigh(self, regions: Tensor, hidden: Tensor, first: Tensor, second: Tensor) -> Tensor:
        patches = F.unfold(regions, 3, padding=1).view(*regions.shape[:2], 9, -1)  # (B, D, 9, P)
        inner: Tensor = SharedConvolution.apply(  # type: ignore[no-untyped-call]  # torch leaves it untyped
            as_multiplied(patches), as_multiplied(first), as_multiplied(hidden)
        )  # (B, L, A, P)
        inner = inner.add_(self.first_bias.flatten(1)).relu_()
        weights: Tensor = (inner.flatten(2) @ second).softmax(dim=2)  # (B, L, P)
        return weights.view(*hidden.shape[:2], *regions.shape[2:])

    def forward_plainly(self, regions: Tensor, hidden: Tensor) -> Tensor:
        products = regions[:, None] * hidden[..., None, None]  # (B, L, D, h, w)
        scores = self.second((self.first(products.flatten(0, 1)) + self.first_bias).relu())  # (B L, 1, h, w)
        weights: Tensor = scores.flatten(1).softmax(dim=1)
        return weights.view(*hidden.shape[:2], *regions.shape[2:])


class SharedConvolution(torch.autograd.Function):
    """Σ_d h[d] (W[a,d] * v[d]) for all traces of a frame, clip by clip.

    W convolved with v is D times the size of a frame. It is computed for one clip at a time, in one reused
    buffer, and recomputed in the backward pass. This bounds memory, and is much faster than allocating it.
    """

    @staticmethod
    def forward(ctx: Any, patches: Tensor, kernels: Tensor, hidden: Tensor) -> Tensor:
        """Patches (B, D, 9, P), kernels (D, 9, A) and states (B, L, D) to (B, L, A, P)."""
        ctx.save_for_backward(patches, kernels, hidden)
        shared = patches.new_empty(kernels.shape[0], kernels.shape[2], patches.shape[3])  # (D, A, P)
        inner = patches.new_empty(*hidden.shape[:2], *shared.shape[1:])
        for clip, states in enumerate(hidden):
            torch.bmm(kernels.mT, patches[clip], out=shared)
            torch.mm(states, shared.flatten(1), out=inner[clip].flatten(1))
        return inner

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_inner: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        patches, kernels, hidden = ctx.saved_tensors
        shared = patches.new_empty(kernels.shape[0], *d_inner.shape[2:])  # and then its gradient
        d_patches, d_hidden = torch.empty_like(patches), torch.empty_like(hidden)
        d_kernels = torch.zeros_like(kernels)
        for clip, d_result in enumerate(d_inner.flatten(2)):  # (L, A P)
            torch.bmm(kernels.mT, patches[clip], out=shared)
            torch.mm(d_result, shared.flatten(1).mT, out=d_hidden[clip])
            torch.mm(hidden[clip].mT, d_result, out=shared.flatten(1))
            torch.bmm(kernels, shared, out=d_patches[clip])
            d_kernels.baddbmm_(patches[clip], shared.mT)
        return d_patches, d_kernels, d_hidden


class ConceptDetector(LearntConceptSource):
    """L tracing LSTMs with shared parameters, one per cell of the grid, that jointly predict concept words.

    Args:
        lr_scale: factor of the learning rate for the detector. A smaller one delays overfitting.
        memory: see `LayerNormLSTM`.
        tie_traces: share W_p between traces, by applying it to the mean of their states. In the paper each
            trace has its own part of W_p, which has to learn every word L times.
    """

    def __init__(
        self,
        *,
        hidden_dim: int,
        grid: tuple[int, int],
        num_candidates: int,
        attention_dim: int,
        num_layers: int = 2,
        dropout: float = 0.2,
        lr_scale: float = 1.0,
        memory: int = 4,
        recompute_attention: bool = False,
        tie_traces: bool = False,
    ) -> None:
        super().__init__()
        self.num_traces = grid[0] * grid[1]
        self.dropout = dropout
        self.lr_scale = lr_scale
        self.recompute_attention = recompute_attention
        self.attend = TraceAttention(hidden_dim=hidden_dim, attention_dim=attention_dim)
        self.trace = LayerNormLSTM(
            input_dim=hidden_dim,
            hidden_dim=hidden_dim,
            num_layers=num_layers,
            dropout=dropout,
            memory=memory,
        )
        self.tie_traces = tie_traces
        name_dim = hidden_dim if tie_traces else self.num_traces * hidden_dim
        self.name = nn.Linear(name_dim, num_candidates)  # W_p, b_p
        nn.init.xavier_uniform_(self.name.weight)
        nn.init.zeros_(self.name.bias)

    def forward(self, regions: Tensor, frame_is_real: Tensor) -> Detection:
        """Trace regions (B, N, D, h, w) through the frames; padding has no effect.

        Args:
            frame_is_real: (B, N), True where a frame is not padding; the first frame of a clip always is.
        """
        batch, _, _, height, width = regions.shape
        first_layer = self.trace.layers[0]
        assert isinstance(first_layer, LayerNormLSTMLayer)
        # A trace's input is a weighted mean of cells, so cells are projected once for all traces.
        mapped = first_layer.from_input(regions.flatten(3).mT)  # (B, N, P, 4 D)
        state = self.trace.initial(batch * self.num_traces, regions)
        trace_is_real = frame_is_real.repeat_interleave(self.num_traces, dim=0)  # (B L, N)
        is_padded = (~frame_is_real).any(dim=0).tolist()  # (N), whether any clip has ended
        # Differs from the paper: α_1 is one-hot, not α_0, because h_0 = 0 would give all traces the same α_1.
        one_hot = torch.eye(self.num_traces, dtype=regions.dtype, device=regions.device)
        weights = one_hot.view(1, self.num_traces, height, width).expand(batch, -1, -1, -1)
        convolutions = self.attend.matrices(regions)
        attention = []
        for number, (frame, cells) in enumerate(zip(regions.unbind(1), mapped.unbind(1), strict=True)):
            if number:
                hidden = state.top.view(batch, self.num_traces, -1)  # (B, L, D)
                weights = self._weigh(frame, hidden, *convolutions)  # eqs. 3 and 4
            context = first_layer.norm_input(weights.flatten(2) @ cells)  # eq. 1, (B, L, 4 D)
            state = self.trace.step(  # eq. 2
                context.flatten(0, 1),
                state,
                is_projected=True,
                is_real=trace_is_real[:, number] if is_padded[number] else None,
            )
            attention.append(weights)
        states = state.top.view(batch, self.num_traces, -1)  # (B, L, D)
        return Detection(self.name_words(states), torch.stack(attention, dim=1), states)

    def name_words(self, states: Tensor) -> Tensor:
        """Final states of the traces (B, L, D) to logits of all candidates (B, V) (eq. 5)."""
        last = states.mean(dim=1) if self.tie_traces else states.flatten(1)
        scores: Tensor = self.name(F.dropout(last, self.dropout, self.training))
        return scores

    def shares(self, states: Tensor, concepts: Tensor) -> Tensor:
        """Contribution of each trace to the logits of concepts (B, K), from states (B, L, D): (B, K, L)."""
        rows = self.name.weight[concepts]  # (B, K, D), or (B, K, L D)
        if self.tie_traces:
            return torch.einsum("bkd,bld->bkl", rows, states) / self.num_traces
        rows = rows.view(*concepts.shape, self.num_traces, -1)
        return torch.einsum("bkld,bld->bkl", rows, states)

    def _weigh(self, frame: Tensor, hidden: Tensor, first: Tensor, second: Tensor) -> Tensor:
        if self.recompute_attention and torch.is_grad_enabled():
            weights: Tensor = checkpoint(self.attend.weigh, frame, hidden, first, second, use_reentrant=False)
            return weights
        return self.attend.weigh(frame, hidden, first, second)


def concept_loss(scores: Tensor, reference: Tensor) -> Tensor:
    """Sigmoid cross-entropy over the candidates for every clip, (B,) (eq. 6).

    Args:
        reference: (B, V), p*: 1 where a word is in the clip's captions.
    """
    return F.binary_cross_entropy_with_logits(scores, reference, reduction="none").mean(dim=1)
