"""CT-SAN for description (section 3.1): clip encoder and caption decoder."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

from ctsan.model.beam_search import Floats, Ints
from ctsan.model.caption_decoder import CaptionDecoder, Decoded, Decoder
from ctsan.model.clip_encoder import BaseClipEncoder, ClipEncoding
from ctsan.model.lstm import State
from ctsan.model.semantic_attention import init_output_bias, init_output_layer


class DescriptionModel(nn.Module):
    """Without detector and attentions this is the paper's Base-SAN.

    Args:
        decoder: replaces the paper's decoder. The arguments for attention and layers are then ignored.
        gate: initial value of both attentions' gates; None for Xavier initialisation.
        init_output_from_embeddings: see `init_output_layer`; the paper uses Xavier initialisation.
    """

    def __init__(
        self,
        *,
        clip_encoder: BaseClipEncoder,
        hidden_dim: int,
        input_attention: bool = True,
        output_attention: bool = True,
        gate: float | None = None,
        num_layers: int = 2,
        dropout: float = 0.2,
        init_output_from_embeddings: bool = False,
        decoder: Decoder | None = None,
    ) -> None:
        super().__init__()
        self.clip_encoder = clip_encoder
        has_concepts = clip_encoder.detector is not None
        self.decode: Decoder = decoder or CaptionDecoder(
            num_words=clip_encoder.embedding.num_embeddings,
            embedding_dim=clip_encoder.embedding.embedding_dim,
            hidden_dim=hidden_dim,
            input_attention=input_attention and has_concepts,
            output_attention=output_attention and has_concepts,
            gate=gate,
            num_layers=num_layers,
            dropout=dropout,
        )
        if init_output_from_embeddings and not self.decode.ties_embedding:
            init_output_layer(self.decode.say, clip_encoder.embedding.weight, self.decode.output_attention)

    def init_output_bias(self, counts: Tensor) -> None:
        """Initialise b_y from the number of each word in training captions, (words,)."""
        init_output_bias(self.decode.say, counts)

    def forward(self, words: Tensor, encoding: ClipEncoding, is_scored: Tensor | None = None) -> Decoded:
        """Predict the next word after each of the words (M, T) of captions, with teacher forcing.

        Args:
            is_scored: (M, T), steps to compute scores for; by default all.
        """
        embedded = self.clip_encoder.embedding(words)
        decoded: Decoded = self.decode(embedded, encoding.concepts, encoding.state, is_scored=is_scored)[0]
        return decoded

    def next_words(
        self, last: Tensor, concepts: Tensor, state: State, related: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """One step of a search: words (B,) and concept words (B, K, E) to log-probabilities (B, words).

        Args:
            related: the result of the decoder's `related`, the same at every step.
        """
        decoded, state = self.decode(self.clip_encoder.embedding(last[:, None]), concepts, state, related)
        return decoded.scores[:, 0].log_softmax(dim=-1), state


class CaptionSteps:
    """A description model as the `Steps` of `beam_search`, for encoded clips. The state is a `State`."""

    def __init__(self, model: DescriptionModel, encoding: ClipEncoding) -> None:
        self._model, self._encoding = model, encoding
        self._related = model.decode.related(encoding.concepts)
        self._of_rows = lru_cache(maxsize=1)(self._inputs)  # successive steps mostly search the same clips

    @property
    def num_clips(self) -> int:
        return len(self._encoding.concepts)

    def start(self) -> State:
        return self._encoding.state

    @torch.inference_mode()
    def next_words(self, last: Ints, state: State, clips: tuple[int, ...]) -> tuple[Floats, State]:
        concepts, related = self._of_rows(clips, len(last) // len(clips))
        words = torch.from_numpy(last).to(concepts.device)
        log_probabilities, state = self._model.next_words(words, concepts, state, related)
        return log_probabilities.float().cpu().numpy(), state

    def select(self, state: State, rows: Ints) -> State:
        places = torch.from_numpy(rows).to(state.hidden.device)
        return State(state.hidden[:, places], state.cell[:, places])

    def _inputs(self, clips: tuple[int, ...], width: int) -> tuple[Tensor, Tensor | None]:
        """Concept words and `related` of the rows of a search, `width` for each clip."""
        rows = torch.tensor(clips, device=self._encoding.concepts.device).repeat_interleave(width)
        return self._encoding.concepts[rows], None if self._related is None else self._related[rows]
