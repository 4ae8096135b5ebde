"""LSTM inputs from words and concept words, shared by all of the paper's language models."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ctsan.model.semantic_attention import InputSemanticAttention


class WordInput(nn.Module):
    """Input semantic attention (eqs. 9 and 10), or W_x alone if it is disabled."""

    def __init__(
        self,
        *,
        embedding_dim: int,
        hidden_dim: int,
        attention: bool,
        contrastive_init: bool = False,
        gate: float | None = None,
    ) -> None:
        super().__init__()
        self.attention = (
            InputSemanticAttention(
                embedding_dim=embedding_dim,
                hidden_dim=hidden_dim,
                contrastive_init=contrastive_init,
                gate=gate,
            )
            if attention
            else None
        )
        self.project = None if attention else nn.Linear(embedding_dim, hidden_dim, bias=False)  # W_x alone
        if self.project is not None:
            nn.init.xavier_uniform_(self.project.weight)

    def forward(self, words: Tensor, concepts: Tensor) -> tuple[Tensor, Tensor | None]:
        """Words (B, T, E) and concept words (B, K, E) to inputs (B, T, D) and weights γ (B, T, K)."""
        if self.attention is not None:
            x, weights = self.attention(words, concepts)
            return x, weights
        assert self.project is not None
        return self.project(words), None

    def table(self, words: Tensor, concepts: Tensor, then: nn.Linear) -> InputTable:
        """Precompute what distinct words (W, E) and concept words (V, E) contribute, independent of the clip.

        Args:
            then: the next layer, without a bias.
        """
        if self.attention is None:
            assert self.project is not None
            return InputTable(then(self.project(words)), None, None, None)
        attention = self.attention
        return InputTable(
            of_words=then(attention.project(words)),
            of_concepts=then(attention.project(attention.gate * concepts)),
            related=concepts @ (words @ attention.relate).mT,
            is_word=(concepts != 0).any(dim=1),
        )


class InputTable(NamedTuple):
    """LSTM inputs as sums of a word term and concept word terms, because W_x is linear."""

    of_words: Tensor  # (W, F)
    of_concepts: Tensor | None  # (V, F); None where there is no attention
    related: Tensor | None  # (V, W), what γ is the softmax of
    is_word: Tensor | None  # (V,), False for an empty slot: see `concept_attention`

    def beside(self, concepts: Tensor) -> Tensor:
        """Inputs of all words for clips with concept words (C, K): (W, C, F); (W, 1, F) without attention."""
        if self.of_concepts is None or self.related is None or self.is_word is None:
            return self.of_words[:, None]
        is_none = ~self.is_word[concepts][..., None]  # (C, K, 1)
        scores = self.related[concepts].masked_fill(is_none, torch.finfo(self.related.dtype).min)
        weights = scores.softmax(dim=1)  # γ, (C, K, W); empty slots add zeros
        return torch.baddbmm(self.of_words, weights.mT, self.of_concepts[concepts]).transpose(0, 1)
