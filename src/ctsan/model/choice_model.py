"""CT-SAN for multiple choice (appendix A.1): scores sentences for a clip."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.clip_encoder import ClipEncoder, ClipEncoding
from ctsan.model.lstm import LayerNormLSTM
from ctsan.model.score_scale import ScoreScale
from ctsan.model.word_input import WordInput


class Scored(NamedTuple):
    """Scores of sentences for their clips. Weights are None if the attention is disabled."""

    scores: Tensor  # S, (M,)
    input_weights: Tensor | None  # γ, (M, T, K)


class ChoiceModel(ScoreScale):
    """Without detector and attention this is the paper's Base-SAN.

    Args:
        gate: initial value of the attention's gate; None for Xavier initialisation.
    """

    def __init__(
        self,
        *,
        clip_encoder: ClipEncoder,
        hidden_dim: int,
        input_attention: bool = True,
        contrastive_init: bool = False,
        gate: float | None = None,
        num_layers: int = 2,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.clip_encoder = clip_encoder
        self.word_input = WordInput(
            embedding_dim=clip_encoder.embedding.embedding_dim,
            hidden_dim=hidden_dim,
            attention=input_attention and clip_encoder.detector is not None,
            contrastive_init=contrastive_init,
            gate=gate,
        )
        self.lstm = LayerNormLSTM(
            input_dim=hidden_dim, hidden_dim=hidden_dim, num_layers=num_layers, dropout=dropout
        )
        self.align = nn.Linear(hidden_dim, hidden_dim)  # W_a, b_a
        self.rate = nn.Linear(hidden_dim, 1, bias=False)  # W_s
        nn.init.xavier_uniform_(self.align.weight)
        nn.init.zeros_(self.align.bias)
        nn.init.xavier_uniform_(self.rate.weight)

    def forward(self, words: Tensor, is_real: Tensor, encoding: ClipEncoding) -> Scored:
        """S = W_s · ReLU(W_a h_T + b_a) for each sentence and the clip in its row.

        Args:
            words: (M, T), sentences with padding at the end.
            is_real: (M, T), True where a word is not padding; padding has no effect.
            encoding: one row per sentence, that of its clip.
        """
        embedded = F.dropout(self.clip_encoder.embedding(words), self.dropout, self.training)
        x, input_weights = self.word_input(embedded, encoding.concepts)
        _, last = self.lstm(x, encoding.state, is_real)  # h_0 = s_N, cells included
        hidden = F.dropout(last.top, self.dropout, self.training)  # h_T, (M, D)
        return Scored(self.score(hidden), input_weights)

    def score(self, hidden: Tensor) -> Tensor:
        """Final states h_T (..., D) to scores S (...)."""
        scores: Tensor = self.rate(self.align(hidden).relu())[..., 0]
        return scores


def margin_loss(scores: Tensor, answer: Tensor, *, margin: float = 1.0) -> Tensor:
    """Max-margin loss Σ_l max(0, S_l - S_l* + Δ) over the wrong choices l, (B,).

    Differs from the paper: the sum as printed includes l = l*, which adds the constant Δ. It is omitted here,
    so that the loss is zero if every wrong choice is outside the margin.

    Args:
        scores: (B, choices).
        answer: (B,), index of the correct choice.
    """
    right = scores.gather(1, answer[:, None])  # (B, 1)
    return (scores - right + margin).relu().sum(dim=1) - margin
