"""CT-SAN for description (section 3.1): clip encoder and caption decoder put together."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ctsan.model.caption_decoder import CaptionDecoder, Decoded
from ctsan.model.clip_encoder import ClipEncoder, ClipEncoding
from ctsan.model.lstm import State
from ctsan.model.search import Sentence, beam_search


class DescriptionModel(nn.Module):
    """Without detector and attentions it is the paper's Base-SAN."""

    def __init__(
        self,
        *,
        clip_encoder: ClipEncoder,
        hidden_dim: int,
        input_attention: bool = True,
        output_attention: bool = True,
        num_layers: int = 2,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.clip_encoder = clip_encoder
        has_concepts = clip_encoder.detector is not None
        self.decode = CaptionDecoder(
            num_words=clip_encoder.embedding.num_embeddings,
            embedding_dim=clip_encoder.embedding.embedding_dim,
            hidden_dim=hidden_dim,
            input_attention=input_attention and has_concepts,
            output_attention=output_attention and has_concepts,
            num_layers=num_layers,
            dropout=dropout,
        )

    def forward(self, words: Tensor, encoding: ClipEncoding) -> Decoded:
        """Teacher forcing: what should follow each of the words (M, T) of captions of the encoded clips."""
        decoded: Decoded = self.decode(self.clip_encoder.embedding(words), encoding.concepts, encoding.state)[
            0
        ]
        return decoded

    @torch.inference_mode()
    def describe(
        self,
        encoding: ClipEncoding,
        *,
        begin: int,
        end: int,
        never: tuple[int, ...],
        beam: int,
        n_best: int = 1,
        max_words: int = 30,
        length_penalty: float = 1.0,
    ) -> list[list[Sentence]]:
        """The best sentences for each encoded clip."""
        concepts = encoding.concepts.repeat_interleave(beam, dim=0)

        def next_words(last: Tensor, state: State) -> tuple[Tensor, State]:
            decoded, state = self.decode(self.clip_encoder.embedding(last[:, None]), concepts, state)
            return decoded.scores[:, 0].log_softmax(dim=-1), state

        return beam_search(
            next_words,
            encoding.state,
            begin=begin,
            end=end,
            never=never,
            beam=beam,
            n_best=n_best,
            max_words=max_words,
            length_penalty=length_penalty,
        )
