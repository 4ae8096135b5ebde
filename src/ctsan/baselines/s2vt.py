"""Sequence to sequence, video to text (Venugopalan et al., 2015): one stack of LSTMs watches, then speaks.

Written from its paper, over the same features and with the same LSTM layers as all other systems here; of its
two inputs, frames and optical flow, the one of frames.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.caption_decoder import Decoded, Decoder, steps_of
from ctsan.model.lstm import LayerNormLSTM, State


class S2VTStack(nn.Module):
    """A first LSTM models the frames, a second one the words, given what the first one says.

    While frames come in, there are no words, and the other way round: zeros are padding for both.

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
        """Frames (B, T, D) and words (B, T, E) to what the second LSTM says, (B, T, D), and both states."""
        watching, speaking = (State(state.hidden[[n]], state.cell[[n]]) for n in range(2))
        seen, first = self.watch(frames, watching, is_real)
        seen = F.dropout(seen, self.dropout, self.training)
        said, second = self.speak(torch.cat([seen, words], dim=2), speaking, is_real)
        hidden, cell = (torch.cat(pair) for pair in zip(first, second, strict=True))
        return said, State(hidden, cell)


class S2VTDecoder(Decoder):
    """The second half: words come in where frames came before.

    Args:
        stack: the one that has watched; there is no other.
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
        """Words so far (B, T, E) to what follows each of them; T is a whole sentence, or one word.

        Args:
            is_scored: as of `CaptionDecoder`.
        """
        words = F.dropout(words, self.dropout, self.training)
        no_frames = words.new_zeros(*words.shape[:2], self.stack.hidden_dim)
        hidden, state = self.stack.run(no_frames, words, state)
        hidden = F.dropout(steps_of(hidden, is_scored), self.dropout, self.training)
        return Decoded(self.say(hidden), None, None), state
