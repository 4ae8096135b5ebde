"""LSTM layers with layer normalisation (Ba et al., 2016), which all of the paper's networks are built of."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class State(NamedTuple):
    """What an LSTM remembers, layer by layer."""

    hidden: Tensor  # (layers, B, D)
    cell: Tensor  # (layers, B, D)

    @property
    def top(self) -> Tensor:
        """The hidden state of the last layer, (B, D)."""
        return self.hidden[-1]


class LayerNormLSTMLayer(nn.Module):
    """One layer. The input's share of the gates is computed for all steps at once, outside the recurrence."""

    def __init__(self, *, input_dim: int, hidden_dim: int) -> None:
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
            self.norm_input.bias[:hidden_dim] = 1  # remember at first

    def project(self, x: Tensor) -> Tensor:
        """The input's share of the gates, (..., 4 D)."""
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
        """All steps: hidden states (B, T, D), and the last hidden state and cell."""
        outputs = []
        for step, projected in enumerate(self.project(x).unbind(dim=1)):
            after = self.advance(projected, hidden, cell)
            if is_real is None:
                hidden, cell = after
            else:  # padding leaves everything as it was
                here = is_real[:, step, None]
                hidden, cell = torch.where(here, after[0], hidden), torch.where(here, after[1], cell)
            outputs.append(hidden)
        return torch.stack(outputs, dim=1), hidden, cell


class LayerNormLSTM(nn.Module):
    """Layers on top of each other, with dropout on the input of every layer but the first."""

    def __init__(self, *, input_dim: int, hidden_dim: int, num_layers: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.hidden_dim = hidden_dim
        self.layers = nn.ModuleList(
            LayerNormLSTMLayer(input_dim=input_dim if n == 0 else hidden_dim, hidden_dim=hidden_dim)
            for n in range(num_layers)
        )

    def initial(self, batch: int, like: Tensor) -> State:
        """Nothing remembered yet."""
        zeros = like.new_zeros(len(self.layers), batch, self.hidden_dim)
        return State(zeros, zeros)

    def forward(
        self, x: Tensor, state: State | None = None, is_real: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Run over a sequence (B, T, input), from `state` on.

        Args:
            is_real: (B, T), True where a step is not padding; padding changes no state.

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

    def step(self, x: Tensor, state: State, *, is_projected: bool = False) -> State:
        """One step from an input (B, input), or from the first layer's `project` of it."""
        hiddens, cells = [], []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, LayerNormLSTMLayer)
            if number:
                x = F.dropout(x, self.dropout, self.training)
            projected = x if is_projected and number == 0 else layer.project(x)
            x, cell = layer.advance(projected, state.hidden[number], state.cell[number])
            hiddens.append(x)
            cells.append(cell)
        return State(torch.stack(hiddens), torch.stack(cells))
