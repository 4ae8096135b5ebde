"""Sequence to sequence, video to text (Venugopalan et al., 2015): one LSTM stack encodes, then decodes.

Written from its paper, with the same features and LSTM layers as all other systems here. Of its two inputs,
frames and optical flow, only frames are used.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.caption_decoder import Decoded, Decoder, steps_of
from ctsan.model.lstm import LayerNormLSTM, State


class S2VTStack(nn.Module):
    """The first LSTM models the frames, the second one the words, given the output of the first.

    During encoding the word input is zero; during decoding the frame input is zero.

    Args:
        memory: see `LayerNormLSTM`.
    """

    def __init__(self, *, hidden_dim: int, embedding_dim: int, dropout: float = 0.2, memory: int = 4) -> None:
        super().__init__()
        self.dropout = dropout
        self.hidden_dim, self.embedding_dim = hidden_dim, embedding_dim
        self.watch = LayerNormLSTM(input_dim=hidden_dim, hidden_dim=hidden_dim, num_layers=1, memory=memory)
        self.speak = LayerNormLSTM(
            input_dim=hidden_dim + embedding_dim, hidden_dim=hidden_dim, num_layers=1, memory=memory
        )

    def forward(self, regions: Tensor, frame_is_real: Tensor) -> State:
        """Regions (B, N, D, h, w), averaged over the grid, to both LSTMs' states after the last frame."""
        frames = F.dropout(regions.mean(dim=(3, 4)), self.dropout, self.training)  # (B, N, D)
        no_words = frames.new_zeros(*frames.shape[:2], self.embedding_dim)
        nothing = State(*(frames.new_zeros(2, len(frames), self.hidden_dim) for _ in range(2)))
        return self.run(frames, no_words, nothing, frame_is_real)[1]

    def run(
        self, frames: Tensor, words: Tensor, state: State, is_real: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Frames (B, T, D) and words (B, T, E) to outputs of the second LSTM, (B, T, D), and both states."""
        watching, speaking = (State(state.hidden[[n]], state.cell[[n]]) for n in range(2))
        video, first = self.watch(frames, watching, is_real)
        video = F.dropout(video, self.dropout, self.training)
        outputs, second = self.speak(torch.cat([video, words], dim=2), speaking, is_real)
        hidden, cell = (torch.cat(pair) for pair in zip(first, second, strict=True))
        return outputs, State(hidden, cell)


class S2VTDecoder(Decoder):
    """The decoding stage: the same stack, with words as input.

    Args:
        stack: the stack that encoded the frames; its weights are shared.
    """

    def __init__(self, *, stack: S2VTStack, num_words: int, dropout: float = 0.2) -> None:
        super().__init__()
        self.output_attention = None
        self.dropout = dropout
        self.stack = stack
        self.say = nn.Linear(stack.hidden_dim, num_words)
        nn.init.xavier_uniform_(self.say.weight)
        nn.init.zeros_(self.say.bias)

    def forward(
        self,
        words: Tensor,
        concepts: Tensor,  # noqa: ARG002  # it has none
        state: State,
        related: None = None,  # noqa: ARG002  # it has none
        is_scored: Tensor | None = None,
    ) -> tuple[Decoded, State]:
        """Predict the next word after each of the words (B, T, E); T is a whole sentence, or 1.

        Args:
            is_scored: as in `CaptionDecoder`.
        """
        words = F.dropout(words, self.dropout, self.training)
        no_frames = words.new_zeros(*words.shape[:2], self.stack.hidden_dim)
        hidden, state = self.stack.run(no_frames, words, state)
        hidden = F.dropout(steps_of(hidden, is_scored), self.dropout, self.training)
        return Decoded(self.say(hidden), None, None), state
