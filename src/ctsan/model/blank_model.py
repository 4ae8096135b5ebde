"""CT-SAN for fill-in-the-blank (section 3.2): a bidirectional LSTM predicts the word at the blank."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.clip_encoder import ClipEncoder, ClipEncoding
from ctsan.model.lstm import LayerNormLSTM
from ctsan.model.semantic_attention import OutputSemanticAttention, init_output_bias, init_output_layer
from ctsan.model.word_input import WordInput


class Filled(NamedTuple):
    """Predictions for the blanks. Weights are None for a disabled attention."""

    scores: Tensor  # (M, V), before the softmax
    input_weights: Tensor | None  # γ, (M, T, K)
    output_weights: Tensor | None  # β, (M, 1, K): only the blank is attended


class BlankModel(nn.Module):
    """Without detector and attentions this is the paper's Base-SAN.

    Each direction is a separate stack of layers. They are combined only at the blank, by W_o.

    Args:
        bidirectional: False reads up to the blank only, which is the paper's Simple-LSTM.
        gate: initial value of both attentions' gates; None for Xavier initialisation.
        init_output_from_embeddings: see `init_output_layer`; the paper uses Xavier initialisation.
    """

    def __init__(
        self,
        *,
        clip_encoder: ClipEncoder,
        hidden_dim: int,
        input_attention: bool = True,
        output_attention: bool = True,
        gate: float | None = None,
        num_layers: int = 2,
        dropout: float = 0.2,
        bidirectional: bool = True,
        init_output_from_embeddings: bool = False,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.clip_encoder = clip_encoder
        has_concepts = clip_encoder.detector is not None
        embedding_dim = clip_encoder.embedding.embedding_dim
        self.word_input = WordInput(
            embedding_dim=embedding_dim,
            hidden_dim=hidden_dim,
            attention=input_attention and has_concepts,
            gate=gate,
        )
        self.read_forwards, backwards = (
            LayerNormLSTM(input_dim=hidden_dim, hidden_dim=hidden_dim, num_layers=num_layers, dropout=dropout)
            for _ in range(2)
        )
        self.read_backwards = backwards if bidirectional else None
        self.join = nn.Linear((1 + bidirectional) * hidden_dim, hidden_dim)  # W_o, b_o
        self.output_attention = (
            OutputSemanticAttention(embedding_dim=embedding_dim, hidden_dim=hidden_dim, gate=gate)
            if output_attention and has_concepts
            else None
        )
        self.say = nn.Linear(hidden_dim, clip_encoder.embedding.num_embeddings)  # W_y, b_y
        for layer in (self.join, self.say):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        if init_output_from_embeddings:
            init_output_layer(self.say, clip_encoder.embedding.weight, self.output_attention)

    def init_output_bias(self, counts: Tensor) -> None:
        """Initialise b_y from the number of each word in training captions, (words,).

        Blanks are always concept candidates, so other words do not count.
        """
        is_candidate = torch.zeros_like(counts)
        is_candidate[self.clip_encoder.candidate_words] = 1
        init_output_bias(self.say, counts * is_candidate)

    def forward(self, words: Tensor, is_real: Tensor, blanks: Tensor, encoding: ClipEncoding) -> Filled:
        """Predict the word in the blank of each sentence.

        Args:
            words: (M, T), sentences with the token `<blank>`, and padding at the end.
            is_real: (M, T), True where a word is not padding; padding has no effect.
            blanks: (M,), index of the blank to fill; other blanks are kept.
            encoding: one row per sentence, that of its clip.
        """
        embedded = F.dropout(self.clip_encoder.embedding(words), self.dropout, self.training)
        x, input_weights = self.word_input(embedded, encoding.concepts)
        # Both start from s_N, cells included. In a flipped sentence padding comes first and keeps the state.
        read = [self.read_forwards(x, encoding.state, is_real)[0]]  # (M, T, D)
        if self.read_backwards is not None:
            read.append(self.read_backwards(x.flip(1), encoding.state, is_real.flip(1))[0].flip(1))
        rows = torch.arange(len(words), device=words.device)
        both = torch.cat([states[rows, blanks] for states in read], dim=-1)  # (M, 2 D)
        output = self.join(F.dropout(both, self.dropout, self.training)).tanh()[:, None]  # o_t, (M, 1, D)
        output_weights = None
        if self.output_attention is not None:
            output, output_weights = self.output_attention(output, encoding.concepts)
        return Filled(self.say(output[:, 0]), input_weights, output_weights)
