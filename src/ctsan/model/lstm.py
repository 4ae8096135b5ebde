"""LSTM layers with layer normalisation (Ba et al., 2016), used by all of the paper's networks."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.recurrence import Recurrence, as_multiplied


class State(NamedTuple):
    """Hidden states and cells of an LSTM, by layer."""

    hidden: Tensor  # (layers, B, D)
    cell: Tensor  # (layers, B, D)

    @property
    def top(self) -> Tensor:
        """The hidden state of the last layer, (B, D)."""
        return self.hidden[-1]


class LayerNormLSTMLayer(nn.Module):
    """One layer. The input projection of the gates is computed for all steps before the recurrence."""

    def __init__(self, *, input_dim: int, hidden_dim: int, memory: int = 4) -> None:
        super().__init__()
        self.hidden_dim = hidden_dim
        self.from_input = nn.Linear(input_dim, 4 * hidden_dim, bias=False)
        self.from_hidden = nn.Linear(hidden_dim, 4 * hidden_dim, bias=False)
        self.norm_input = nn.LayerNorm(4 * hidden_dim)  # its bias is the gates' bias
        self.norm_hidden = nn.LayerNorm(4 * hidden_dim, bias=False)
        self.norm_cell = nn.LayerNorm(hidden_dim)
        nn.init.xavier_uniform_(self.from_input.weight)
        nn.init.xavier_uniform_(self.from_hidden.weight)
        with torch.no_grad():
            # About a third of the cell remains after `memory` steps; long memory gets small input gates.
            self.norm_input.bias[:hidden_dim] = math.log(max(memory - 1, 1))
            self.norm_input.bias[hidden_dim : 2 * hidden_dim] = -math.log(max(memory / 4, 1))

    def project(self, x: Tensor) -> Tensor:
        """Input projection of the gates, (..., 4 D)."""
        projected: Tensor = self.norm_input(self.from_input(x))
        return projected

    def advance(self, projected: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One step: hidden state and cell, both (B, D)."""
        gates = projected + self.norm_hidden(self.from_hidden(hidden))  # (B, 4 D)
        forget, write, show = gates[..., : 3 * self.hidden_dim].sigmoid().chunk(3, dim=-1)
        cell = forget * cell + write * gates[..., 3 * self.hidden_dim :].tanh()
        return show * self.norm_cell(cell).tanh(), cell

    def forward(
        self, x: Tensor, hidden: Tensor, cell: Tensor, is_real: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run all steps: hidden states (B, T, D), and the last hidden state and cell."""
        projected = self.project(x.transpose(0, 1))  # (T, B, 4 D), so that each step is contiguous
        outputs, hidden, cell = Recurrence.apply(  # type: ignore[no-untyped-call]  # torch leaves it untyped
            projected,
            hidden.to(projected.dtype),
            cell.to(projected.dtype),
            None if is_real is None else is_real.mT,
            as_multiplied(self.from_hidden.weight),
            self.norm_hidden.weight,
            self.norm_cell.weight,
            self.norm_cell.bias,
            self.norm_cell.eps,
        )
        return outputs.transpose(0, 1), hidden, cell


class LayerNormLSTM(nn.Module):
    """Stacked layers, with dropout on the input of every layer but the first.

    Args:
        memory: number of steps after which a third of the cell remains at initialisation. The bias of the
            forget gates is initialised as log(memory - 1), that of the input gates as -log(memory / 4). The
            paper does not specify them; 4 gives log 3 = 1.1 and 0, near the customary 1 and 0.
    """

    def __init__(
        self, *, input_dim: int, hidden_dim: int, num_layers: int = 2, dropout: float = 0.0, memory: int = 4
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.hidden_dim = hidden_dim
        self.layers = nn.ModuleList(
            LayerNormLSTMLayer(
                input_dim=input_dim if n == 0 else hidden_dim, hidden_dim=hidden_dim, memory=memory
            )
            for n in range(num_layers)
        )

    def initial(self, batch: int, like: Tensor) -> State:
        """The zero state."""
        zeros = like.new_zeros(len(self.layers), batch, self.hidden_dim)
        return State(zeros, zeros)

    def forward(
        self, x: Tensor, state: State | None = None, is_real: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Run over a sequence (B, T, input), starting from `state`.

        Args:
            is_real: (B, T), True where a step is not padding; padding does not change the state.

        Returns:
            The top layer's hidden states (B, T, D), and the state after the last real step.
        """
        state = state or self.initial(len(x), x)
        hiddens, cells = [], []
        for number, layer in enumerate(self.layers):
            if number:
                x = F.dropout(x, self.dropout, self.training)
            x, hidden, cell = layer(x, state.hidden[number], state.cell[number], is_real)
            hiddens.append(hidden)
            cells.append(cell)
        return x, State(torch.stack(hiddens), torch.stack(cells))

    def step(
        self, x: Tensor, state: State, *, is_projected: bool = False, is_real: Tensor | None = None
    ) -> State:
        """One step from an input (B, input), or from the first layer's `project` of it.

        Args:
            is_real: (B,), False where the state is kept.
        """
        here = None if is_real is None else is_real[:, None]
        hiddens, cells = [], []
        before = zip(state.hidden.unbind(0), state.cell.unbind(0), strict=True)
        for number, (layer, (hidden, cell)) in enumerate(zip(self.layers, before, strict=True)):
            assert isinstance(layer, LayerNormLSTMLayer)
            if number:
                x = F.dropout(x, self.dropout, self.training)
            projected = x if is_projected and number == 0 else layer.project(x)
            x, after = layer.advance(projected, hidden, cell)
            if here is not None:
                x, after = torch.where(here, x, hidden), torch.where(here, after, cell)
            hiddens.append(x)
            cells.append(after)
        return State(torch.stack(hiddens), torch.stack(cells))
