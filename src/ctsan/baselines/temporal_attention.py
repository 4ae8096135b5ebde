"""Temporal attention (Yao et al., 2015): the decoder attends to the frames before each word.

Written from its paper, with the same features and LSTM layers as all other systems here, and without the 3-D
convolutions for local motion, which are separate features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.caption_decoder import Decoded, Decoder, steps_of
from ctsan.model.clip_encoder import ClipEncoder, ClipEncoding
from ctsan.model.lstm import LayerNormLSTM, State
from ctsan.model.video_encoder import mean_over_frames


class FrameMean(nn.Module):
    """The decoder's initial state, from the mean frame. No LSTM runs over the frames."""

    def __init__(self, *, hidden_dim: int) -> None:
        super().__init__()
        self.begin = nn.Linear(hidden_dim, 2 * hidden_dim)
        nn.init.xavier_uniform_(self.begin.weight)
        nn.init.zeros_(self.begin.bias)

    def forward(self, regions: Tensor, frame_is_real: Tensor) -> State:
        """Regions (B, N, D, h, w) to a state of one layer."""
        mean = mean_over_frames(regions.mean(dim=(3, 4)), frame_is_real)  # (B, D)
        hidden, cell = self.begin(mean).tanh().chunk(2, dim=1)
        return State(hidden[None], cell[None])


class FrameEncoder(ClipEncoder):
    """Passes the frames, (B, max_frames, D), in the place of concept embeddings.

    Args:
        max_frames: frames per clip. Shorter clips are padded with zeros, which mark padding.
    """

    def __init__(self, *, max_frames: int, hidden_dim: int, **encoder_arguments: object) -> None:
        super().__init__(
            hidden_dim=hidden_dim,
            detector=None,
            video_encoder=FrameMean(hidden_dim=hidden_dim),
            **encoder_arguments,  # type: ignore[arg-type]  # as the caller names them
        )
        self.max_frames = max_frames

    def forward(
        self,
        maps: Tensor,
        frame_is_real: Tensor,
        concept_scores: Tensor | None = None,  # noqa: ARG002  # it has no concept words
    ) -> ClipEncoding:
        regions = self.regions(maps)
        frames = regions.mean(dim=(3, 4)) * frame_is_real[..., None]  # (B, N, D)
        frames = F.pad(frames, (0, 0, 0, self.max_frames - frames.shape[1]))
        no_words = maps.new_zeros(len(maps), 0)
        return ClipEncoding(
            self.encode_video(regions, frame_is_real), frames, no_words.long(), no_words, None
        )


class TemporalAttentionDecoder(Decoder):
    def __init__(self, *, num_words: int, embedding_dim: int, hidden_dim: int, dropout: float = 0.2) -> None:
        super().__init__()
        self.output_attention = None
        self.dropout = dropout
        self.from_state = nn.Linear(hidden_dim, hidden_dim)  # W_a, b_a
        self.from_frame = nn.Linear(hidden_dim, hidden_dim, bias=False)  # U_a
        self.weigh = nn.Linear(hidden_dim, 1, bias=False)  # w
        self.lstm = LayerNormLSTM(input_dim=embedding_dim + hidden_dim, hidden_dim=hidden_dim, num_layers=1)
        self.join = nn.Linear(2 * hidden_dim + embedding_dim, hidden_dim)  # W_p, b_p
        self.say = nn.Linear(hidden_dim, num_words)  # U_p, d
        for layer in (self.from_state, self.from_frame, self.weigh, self.join, self.say):
            nn.init.xavier_uniform_(layer.weight)
        for layer in (self.from_state, self.join, self.say):
            nn.init.zeros_(layer.bias)

    def related(self, concepts: Tensor) -> Tensor:
        """Projected frames (B, N, D), the same at every step. `concepts` holds the frames."""
        projected: Tensor = self.from_frame(concepts)  # (B, N, D)
        return projected

    def forward(
        self,
        words: Tensor,
        frames: Tensor,
        state: State,
        related: Tensor | None = None,
        is_scored: Tensor | None = None,
    ) -> tuple[Decoded, State]:
        """Predict the next word after each of the words (B, T, E), given frames (B, N, D).

        Attention depends on the previous state, so steps run one by one even with teacher forcing.

        Args:
            related: the result of `related`, if already computed.
            is_scored: as in `CaptionDecoder`.
        """
        words = F.dropout(words, self.dropout, self.training)
        is_real = (frames != 0).any(dim=2)  # (B, N)
        projected = self.related(frames) if related is None else related
        outputs = []
        for word in words.unbind(1):
            energy = self.weigh((self.from_state(state.top)[:, None] + projected).tanh())[..., 0]  # (B, N)
            weights = energy.masked_fill(~is_real, -torch.inf).softmax(dim=1)
            context = (weights[:, None] @ frames)[:, 0]  # φ_t, (B, D)
            state = self.lstm.step(torch.cat([word, context], dim=1), state)
            outputs.append(torch.cat([state.top, context, word], dim=1))
        hidden = steps_of(torch.stack(outputs, dim=1), is_scored)
        joined = self.join(F.dropout(hidden, self.dropout, self.training)).tanh()
        return Decoded(self.say(F.dropout(joined, self.dropout, self.training)), None, None), state
