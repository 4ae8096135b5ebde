"""The caption decoding LSTM with input and output semantic attention (eqs. 8 to 13)."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.lstm import LayerNormLSTM, State
from ctsan.model.semantic_attention import OutputSemanticAttention
from ctsan.model.word_input import WordInput


class Decoded(NamedTuple):
    """Predictions of the next words. Weights are None for a disabled attention."""

    scores: Tensor  # (B, T, words), before the softmax; (n, words) if `is_scored` selects n steps
    input_weights: Tensor | None  # γ, (B, T, K)
    output_weights: Tensor | None  # β, (B, T, K)


class Decoder(nn.Module):
    """Base class of caption decoders, the paper's and the baselines'.

    Attributes:
        say: W_y, b_y.
        ties_embedding: W_y is the word embedding itself.
    """

    say: nn.Linear
    output_attention: OutputSemanticAttention | None
    ties_embedding: ClassVar[bool] = False

    def related(self, concepts: Tensor) -> Tensor | None:  # noqa: ARG002  # by default nothing
        """Projection of the concept words (B, K, E) that is the same at every step; None if there is none."""
        return None


class CaptionDecoder(Decoder):
    """Each attention can be disabled, for the paper's ablation. Without both it is the paper's Base-SAN.

    Args:
        gate: initial value of both attentions' gates; None for Xavier initialisation.
    """

    def __init__(
        self,
        *,
        num_words: int,
        embedding_dim: int,
        hidden_dim: int,
        input_attention: bool = True,
        output_attention: bool = True,
        gate: float | None = None,
        num_layers: int = 2,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.word_input = WordInput(
            embedding_dim=embedding_dim, hidden_dim=hidden_dim, attention=input_attention, gate=gate
        )
        self.lstm = LayerNormLSTM(
            input_dim=hidden_dim, hidden_dim=hidden_dim, num_layers=num_layers, dropout=dropout
        )
        self.output_attention = (
            OutputSemanticAttention(embedding_dim=embedding_dim, hidden_dim=hidden_dim, gate=gate)
            if output_attention
            else None
        )
        self.say = nn.Linear(hidden_dim, num_words)  # W_y, b_y
        nn.init.xavier_uniform_(self.say.weight)
        nn.init.zeros_(self.say.bias)

    def related(self, concepts: Tensor) -> Tensor | None:
        """The output attention's projection of the concept words, the same at every step."""
        return None if self.output_attention is None else self.output_attention.related(concepts)

    def forward(
        self,
        words: Tensor,
        concepts: Tensor,
        state: State,
        related: Tensor | None = None,
        is_scored: Tensor | None = None,
    ) -> tuple[Decoded, State]:
        """Predict the next word after each of the words (B, T, E), given concept words (B, K, E).

        With teacher forcing, T covers the whole sentence. In a search T is 1, and `state` is that returned by
        the last call. The initial state is the video encoder's: h_0 = s_N, cells included.

        Args:
            related: the result of `related`, if already computed.
            is_scored: (B, T), steps to compute scores for; by default all. W_y dominates the cost, and half
                of a batch is padding.
        """
        words = F.dropout(words, self.dropout, self.training)
        x, input_weights = self.word_input(words, concepts)  # eqs. 9 and 10
        # Differs from the paper: h_0 = s_N includes the cells of all layers, which it leaves open.
        hidden, state = self.lstm(x, state)  # eq. 8
        hidden = F.dropout(hidden, self.dropout, self.training)
        output_weights = None
        if self.output_attention is not None:
            hidden, output_weights = self.output_attention(hidden, concepts, related)  # eqs. 11 and 12
        scores = self.say(steps_of(hidden, is_scored))  # eq. 13
        return Decoded(scores, input_weights, output_weights), state


def steps_of(hidden: Tensor, is_scored: Tensor | None) -> Tensor:
    """Select the scored steps of states (B, T, D): (n, D); `hidden` itself if `is_scored` is None."""
    return hidden if is_scored is None else hidden[is_scored]
