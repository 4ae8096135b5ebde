"""Sentences as a tree of their beginnings: an LSTM reads what they have in common once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ctsan.model.lstm import LayerNormLSTM, LayerNormLSTMLayer, State

_NUMBERS_AT_ONCE = 2**18  # of hidden states: their gates stay in the cache


class Level(NamedTuple):
    """All beginnings of one length (n of them), in order: those with the same parent follow each other."""

    words: Tensor  # (n,), the last word of each, as a place in `PrefixTree.words`
    parents: Tensor  # (n,), each without its last word: places in the level before
    ended: Tensor  # (m,), the sentences that end here
    ends: Tensor  # (m,), the beginning that each of them is


class PrefixTree(NamedTuple):
    words: Tensor  # (W,), all different words
    num_sentences: int
    levels: tuple[Level, ...]  # the beginnings of one word, of two words, ...

    @property
    def width(self) -> int:
        """The number of beginnings in the widest level."""
        return max((len(level.words) for level in self.levels), default=0)


def prefix_tree(sentences: Tensor, is_real: Tensor) -> PrefixTree:
    """The tree of sentences (M, T) with padding at the end, which must be sorted, as by `torch.unique`."""
    words, places = torch.unique(sentences, return_inverse=True)  # (W,), (M, T)
    is_new = torch.ones_like(is_real)  # not the beginning of the sentence before
    is_new[1:] = (sentences[1:] != sentences[:-1]).cumsum(dim=1) > 0
    is_new &= is_real
    numbers = is_new.cumsum(dim=0) - 1  # (M, T), of each beginning in its level
    before = torch.cat(
        [torch.zeros_like(numbers[:, :1]), numbers], dim=1
    )  # before the first word all are one
    lengths = is_real.sum(dim=1)
    levels = []
    for t in range(sentences.shape[1]):
        new, ended = is_new[:, t], (lengths == t + 1).nonzero()[:, 0]
        levels.append(Level(places[new, t], before[new, t], ended, numbers[ended, t]))
    return PrefixTree(words, len(sentences), tuple(level for level in levels if len(level.words)))


def read_tree(lstm: LayerNormLSTM, projected: Tensor, tree: PrefixTree, start: State) -> Tensor:
    """The top layer's last state of all sentences beside all clips, (M, C, D), without dropout.

    The share of the gates that comes from a parent is worked out once for all its children.

    Args:
        projected: (W, C, 4 D), the first layer's `project` of every word of the tree; or (W, 1, 4 D), if it
            is the same beside all clips.
        start: (layers, C, D).
    """
    layers = [layer for layer in lstm.layers if isinstance(layer, LayerNormLSTMLayer)]
    from_input = [layer.from_input.weight.mT.contiguous() for layer in layers]  # multiplied faster like this
    from_hidden = [layer.from_hidden.weight.mT.contiguous() for layer in layers]
    hidden, cell = start.hidden[:, None], start.cell[:, None]  # (layers, 1, C, D): nothing read yet
    clips, dim = hidden.shape[2:]
    at_once = max(1, _NUMBERS_AT_ONCE // (clips * dim))
    last = hidden[-1].repeat(tree.num_sentences, 1, 1)
    for level in tree.levels:
        shape = (len(hidden), len(level.words), clips, dim)
        hidden_after, cell_after = hidden.new_empty(shape), cell.new_empty(shape)
        for first in range(0, len(level.words), at_once):
            here = slice(first, first + at_once)
            parents, parent_of = torch.unique_consecutive(level.parents[here], return_inverse=True)
            x = projected.index_select(0, level.words[here])  # (n, C, 4 D)
            for number, layer in enumerate(layers):
                gates = layer.norm_hidden(hidden[number].index_select(0, parents) @ from_hidden[number])
                if len(parents) < len(parent_of):
                    gates = gates.index_select(0, parent_of)
                gates += layer.norm_input(x @ from_input[number]) if number else x
                x, cell_here = hidden_after[number, here], cell_after[number, here]
                torch.index_select(cell[number], 0, level.parents[here], out=cell_here)
                _advance(layer, gates, cell_here, out=x)
        hidden, cell = hidden_after, cell_after
        last[level.ended] = hidden[-1][level.ends]
    return last


def _advance(layer: LayerNormLSTMLayer, gates: Tensor, cell: Tensor, *, out: Tensor) -> None:
    """The cell goes one step on in its place, and the hidden state to `out`; `gates` are both shares' sum."""
    dim = layer.hidden_dim
    forget, write, show = gates[..., : 3 * dim].sigmoid_().chunk(3, dim=-1)
    cell.mul_(forget).addcmul_(write, _tanh(gates[..., 3 * dim :]))
    torch.mul(show, _tanh(layer.norm_cell(cell)), out=out)


def _tanh(x: Tensor) -> Tensor:
    """In place, and in half the time of `Tensor.tanh_`."""
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)
