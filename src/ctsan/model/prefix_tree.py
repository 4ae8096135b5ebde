"""Prefix tree (trie) of sentences: an LSTM reads a common prefix once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ctsan.model.lstm import LayerNormLSTM, LayerNormLSTMLayer, State

_NUMBERS_AT_ONCE = 2**18  # elements of hidden states per block, so that their gates stay in the CPU cache


class Level(NamedTuple):
    """The n prefixes of one length, sorted, so that those with the same parent are consecutive."""

    words: Tensor  # (n,), last word of each prefix, as an index into `PrefixTree.words`
    parents: Tensor  # (n,), prefix without its last word, as an index into the previous level
    ended: Tensor  # (m,), sentences that end here
    ends: Tensor  # (m,), the prefix that equals each of them


class PrefixTree(NamedTuple):
    words: Tensor  # (W,), distinct words
    num_sentences: int
    levels: tuple[Level, ...]  # prefixes of one word, of two words, ...

    @property
    def width(self) -> int:
        """Number of prefixes in the widest level."""
        return max((len(level.words) for level in self.levels), default=0)


def prefix_tree(sentences: Tensor, is_real: Tensor) -> PrefixTree:
    """Build the tree of sentences (M, T), padded at the end and sorted, as by `torch.unique`."""
    words, places = torch.unique(sentences, return_inverse=True)  # (W,), (M, T)
    is_new = torch.ones_like(is_real)  # not a prefix of the previous sentence
    is_new[1:] = (sentences[1:] != sentences[:-1]).cumsum(dim=1) > 0
    is_new &= is_real
    numbers = is_new.cumsum(dim=0) - 1  # (M, T), index of each prefix in its level
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
    """Final top-layer states of all sentences for all clips, (M, C, D), without dropout.

    The hidden projection of a parent is computed once for all its children.

    Args:
        projected: (W, C, 4 D), the first layer's `project` of every word of the tree; or (W, 1, 4 D), if it
            is the same for all clips.
        start: (layers, C, D).
    """
    layers = [layer for layer in lstm.layers if isinstance(layer, LayerNormLSTMLayer)]
    from_input = [layer.from_input.weight.mT.contiguous() for layer in layers]  # faster to multiply
    from_hidden = [layer.from_hidden.weight.mT.contiguous() for layer in layers]
    hidden, cell = start.hidden[:, None], start.cell[:, None]  # (layers, 1, C, D), of the empty prefix
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
    """One step: updates the cell in place and writes the hidden state to `out`.

    `gates` is the sum of input and hidden projections.
    """
    dim = layer.hidden_dim
    forget, write, show = gates[..., : 3 * dim].sigmoid_().chunk(3, dim=-1)
    cell.mul_(forget).addcmul_(write, _tanh(gates[..., 3 * dim :]))
    torch.mul(show, _tanh(layer.norm_cell(cell)), out=out)


def _tanh(x: Tensor) -> Tensor:
    """In-place tanh in half the time of `Tensor.tanh_`."""
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)
