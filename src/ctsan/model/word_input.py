"""What a word becomes before an LSTM reads it: the same in all of the paper's language models."""

from __future__ import annotations

from torch import Tensor, nn

from ctsan.model.semantic_attention import InputSemanticAttention


class WordInput(nn.Module):
    """Input semantic attention (eqs. 9 and 10), or W_x alone where it is left out."""

    def __init__(self, *, embedding_dim: int, hidden_dim: int, attention: bool) -> None:
        super().__init__()
        self.attention = (
            InputSemanticAttention(embedding_dim=embedding_dim, hidden_dim=hidden_dim) if attention else None
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
