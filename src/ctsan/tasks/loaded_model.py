"""A model that answers questions about clips, alone or with others as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import nn

from ctsan.data.batches import pad_maps, subsample_maps
from ctsan.model.clip_encoder import BaseClipEncoder, ClipEncoder, ClipEncoding
from ctsan.model.lstm import State
from ctsan.model.semantic_attention import InputSemanticAttention, OutputSemanticAttention
from ctsan.text.words import Words
from ctsan.video.store import Maps


class SeesClips(Protocol):
    """What the models of all tasks have in common."""

    @property
    def clip_encoder(self) -> BaseClipEncoder: ...


ModelT = TypeVar("ModelT", bound=SeesClips, covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel(Generic[ModelT]):
    """One of the models that answer as one, with the words that it knows and how much it takes in.

    Attributes:
        eyes: a copy of the model's clip encoder on a faster device. Sentences, whose words come one after the
            other and take little computing each, are read and said where the model is.
        standardise: bring its scores, and those of members beside it, to one scale before they are averaged.
    """

    model: ModelT
    words: Words
    max_frames: int
    max_words: int
    eyes: BaseClipEncoder | None = None
    standardise: bool = False

    @torch.inference_mode()
    def encode(self, clips: Sequence[Maps]) -> ClipEncoding:
        """What the model makes of the maps of clips, a row a clip."""
        encoder = self.eyes or self.model.clip_encoder
        maps, frame_is_real = pad_maps([subsample_maps(clip, self.max_frames) for clip in clips])
        device = encoder.candidate_words.device
        encoding: ClipEncoding = encoder(maps.to(device), frame_is_real.to(device))
        return encoding.to(self.model.clip_encoder.candidate_words.device) if self.eyes else encoding


def reads_concepts(model: nn.Module) -> bool:
    """Whether a model has concept words and an attention that reads them."""
    encoder = getattr(model, "clip_encoder", None)
    attentions = (InputSemanticAttention, OutputSemanticAttention)
    return (
        isinstance(encoder, ClipEncoder)
        and encoder.detector is not None
        and any(isinstance(module, attentions) for module in model.modules())
    )


def joined(encodings: Sequence[ClipEncoding]) -> ClipEncoding:
    """Encodings of several batches as one: all that answers need, and not where the traces looked."""
    return ClipEncoding(
        state=State(
            torch.cat([each.state.hidden for each in encodings], dim=1),
            torch.cat([each.state.cell for each in encodings], dim=1),
        ),
        concepts=torch.cat([each.concepts for each in encodings]),
        concept_words=torch.cat([each.concept_words for each in encodings]),
        confidences=torch.cat([each.confidences for each in encodings]),
        detection=None,
    )
