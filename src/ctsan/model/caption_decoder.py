"""The caption decoding LSTM between its two semantic attentions (eqs. 8 to 13)."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.lstm import LayerNormLSTM, State
from ctsan.model.semantic_attention import OutputSemanticAttention
from ctsan.model.word_input import WordInput


class Decoded(NamedTuple):
    """What the decoder says of the next words; weights are None where that attention is left out."""

    scores: Tensor  # (B, T, words), before the softmax; (n, words) where n of the steps are asked for
    input_weights: Tensor | None  # γ, (B, T, K)
    output_weights: Tensor | None  # β, (B, T, K)


class Decoder(nn.Module):
    """What every decoder of captions has, the paper's and others'.

    Attributes:
        say: W_y, b_y.
        ties_embedding: W_y is the word embedding itself.
    """

    say: nn.Linear
    output_attention: OutputSemanticAttention | None
    ties_embedding: ClassVar[bool] = False

    def related(self, concepts: Tensor) -> Tensor | None:  # noqa: ARG002  # by default nothing
        """What `forward` makes of the concept words (B, K, E) alike at every step; None without such."""
        return None


class CaptionDecoder(Decoder):
    """Each attention can be left out: the paper's ablation, and with neither its Base-SAN.

    Args:
        gate: what both attentions' gates begin as; None draws them.
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
        """What is the same at every step of a sentence."""
        return None if self.output_attention is None else self.output_attention.related(concepts)

    def forward(
        self,
        words: Tensor,
        concepts: Tensor,
        state: State,
        related: Tensor | None = None,
        is_scored: Tensor | None = None,
    ) -> tuple[Decoded, State]:
        """Words so far (B, T, E) and concept words (B, K, E) to what follows each of the words.

        Under teacher forcing T is the whole sentence at once; in a search it is one word, with the state
        that the last call returned. The first state is the video encoder's: h_0 = s_N, its cells included.

        Args:
            related: what `related` makes of the concept words, where that is known already.
            is_scored: (B, T), the steps that scores are asked of, by default all: W_y is most of the work,
                and half of a batch is padding.
        """
        words = F.dropout(words, self.dropout, self.training)
        x, input_weights = self.word_input(words, concepts)  # eqs. 9 and 10
        hidden, state = self.lstm(x, state)  # eq. 8
        hidden = F.dropout(hidden, self.dropout, self.training)
        output_weights = None
        if self.output_attention is not None:
            hidden, output_weights = self.output_attention(hidden, concepts, related)  # eqs. 11 and 12
        scores = self.say(steps_of(hidden, is_scored))  # eq. 13
        return Decoded(scores, input_weights, output_weights), state


def steps_of(hidden: Tensor, is_scored: Tensor | None) -> Tensor:
    """Of states (B, T, D) those of some steps, (n, D); all of them as they are where none are named."""
    return hidden if is_scored is None else hidden[is_scored]
