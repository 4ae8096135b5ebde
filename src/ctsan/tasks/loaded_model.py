"""A trained model ready for inference, alone or as a member of an ensemble."""

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
    """Interface common to the models of all tasks."""

    @property
    def clip_encoder(self) -> BaseClipEncoder: ...


ModelT = TypeVar("ModelT", bound=SeesClips, covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel(Generic[ModelT]):
    """A model, or a member of an ensemble, with its vocabulary and its input limits.

    Attributes:
        device_encoder: a copy of the clip encoder on a faster device. The language model stays on the model's
            device, because it runs word by word with little computation per step.
        standardise: standardise the scores of all members of the ensemble before averaging them.
    """

    model: ModelT
    words: Words
    max_frames: int
    max_words: int
    device_encoder: BaseClipEncoder | None = None
    standardise: bool = False

    @torch.inference_mode()
    def encode(self, clips: Sequence[Maps]) -> ClipEncoding:
        """Encode the maps of clips, one row per clip."""
        encoder = self.device_encoder or self.model.clip_encoder
        maps, frame_is_real = pad_maps([subsample_maps(clip, self.max_frames) for clip in clips])
        device = encoder.candidate_words.device
        encoding: ClipEncoding = encoder(maps.to(device), frame_is_real.to(device))
        return (
            encoding.to(self.model.clip_encoder.candidate_words.device) if self.device_encoder else encoding
        )


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
    """Concatenate encodings of several batches, without their detections."""
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
