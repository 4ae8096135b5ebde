"""Mean pooling: an LSTM decodes captions from the mean feature of a clip (Venugopalan et al., NAACL 2015).

The simplest captioning model, and fast to train. On a few hundred clips it is about as good as CT-SAN, and it
makes different errors, which makes it useful in an ensemble.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.caption_decoder import Decoded, Decoder, steps_of
from ctsan.model.clip_encoder import BaseClipEncoder, ClipEncoding
from ctsan.model.lstm import LayerNormLSTM, State


class MeanPooling(BaseClipEncoder):
    """A clip encoder whose state is the mean feature, without concept words."""

    detector = None
    num_concepts = 0

    def __init__(self, *, channels: int, embedding: Tensor, candidate_words: Tensor) -> None:
        super().__init__()
        self._add_inputs(channels=channels, embedding=embedding, candidate_words=candidate_words)

    @torch.no_grad()
    def init_from(self, means: Tensor, scales: Tensor) -> None:
        """Set the channel means and scales of the training clips, both (C,)."""
        self.channel_means.copy_(means)
        self.channel_scales.copy_(scales)

    def forward(
        self,
        maps: Tensor,
        frame_is_real: Tensor,
        concept_scores: Tensor | None = None,  # noqa: ARG002  # as of ClipEncoder
    ) -> ClipEncoding:
        """Maps (B, N, h, w, C) to their normalised means over real frames and cells."""
        frames = maps.mean(dim=(2, 3))  # (B, N, C)
        shares = frame_is_real / frame_is_real.sum(dim=1, keepdim=True)
        means = torch.einsum("bnc,bn->bc", frames, shares.to(frames.dtype))
        pooled = F.layer_norm((means - self.channel_means) / self.channel_scales, means.shape[1:])
        nothing = maps.new_zeros(len(maps), 0)
        concepts = maps.new_zeros(len(maps), 0, self.embedding.embedding_dim)
        state = State(pooled[None], pooled[None])
        return ClipEncoding(state, concepts, nothing.long(), nothing, None)


class PooledEncoder(MeanPooling):
    """Passes the projected mean feature, (B, 1, D), in the place of concept embeddings.

    Args:
        channel_dropout: dropout rate of the mean feature, against overfitting small corpora.
    """

    def __init__(
        self,
        *,
        channels: int,
        embedding: Tensor,
        candidate_words: Tensor,
        hidden_dim: int,
        channel_dropout: float = 0.0,
    ) -> None:
        super().__init__(channels=channels, embedding=embedding, candidate_words=candidate_words)
        self.channel_dropout = channel_dropout
        self.see = nn.Linear(channels, hidden_dim)
        self.begin = nn.Linear(hidden_dim, hidden_dim)

    def forward(
        self, maps: Tensor, frame_is_real: Tensor, concept_scores: Tensor | None = None
    ) -> ClipEncoding:
        encoding = super().forward(maps, frame_is_real, concept_scores)
        clip_feature = self.see(
            F.dropout(encoding.state.top, self.channel_dropout, self.training)
        ).tanh()  # (B, D)
        hidden = self.begin(clip_feature).tanh()[None]
        return encoding._replace(
            state=State(hidden, torch.zeros_like(hidden)), concepts=clip_feature[:, None]
        )


class PooledDecoder(Decoder):
    """Gets the clip feature with every word. The output weights are tied to the word embedding.

    Args:
        embedding: the encoder's word embedding.
    """

    ties_embedding = True

    def __init__(self, *, embedding: nn.Embedding, hidden_dim: int, dropout: float = 0.2) -> None:
        super().__init__()
        self.output_attention = None
        self.dropout = dropout
        self.from_word = nn.Linear(embedding.embedding_dim, hidden_dim)
        self.lstm = LayerNormLSTM(input_dim=2 * hidden_dim, hidden_dim=hidden_dim, num_layers=1)
        self.to_word = nn.Linear(hidden_dim, embedding.embedding_dim)
        self.say = nn.Linear(embedding.embedding_dim, embedding.num_embeddings)
        self.say.weight = cast("nn.Parameter", embedding.weight)
        nn.init.zeros_(self.say.bias)

    def forward(
        self,
        words: Tensor,
        concepts: Tensor,
        state: State,
        related: None = None,  # noqa: ARG002  # as of the other decoders
        is_scored: Tensor | None = None,
    ) -> tuple[Decoded, State]:
        """Predict the next word after each of the words (B, T, E), given clip features (B, 1, D).

        Args:
            is_scored: as in `CaptionDecoder`.
        """
        inputs = F.dropout(self.from_word(words), self.dropout, self.training)
        hidden, state = self.lstm(torch.cat([inputs, concepts.expand(-1, words.shape[1], -1)], dim=2), state)
        outputs = self.to_word(F.dropout(steps_of(hidden, is_scored), self.dropout, self.training))
        return Decoded(self.say(outputs), None, None), state
