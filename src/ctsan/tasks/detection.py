"""Concept detection alone: trains a detector without a language model (Decoupled CT-SAN)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ctsan.model.clip_encoder import ClipEncoder, ClipEncoding
from ctsan.tasks.clips import TaskClips
from ctsan.tasks.losses import detector_losses
from ctsan.tasks.task import Example, Measured


class DetectorModel(nn.Module):
    """A clip encoder without a language model."""

    def __init__(self, clip_encoder: ClipEncoder) -> None:
        super().__init__()
        self.clip_encoder = clip_encoder


class DetectionBatch(NamedTuple):
    maps: Tensor  # (B, N, h, w, C)
    frame_is_real: Tensor  # (B, N)
    reference: Tensor  # (B, V): 1 where a concept candidate is in the clip's captions


class DetectionTask:
    """An example is a clip. Its reference words are those of all its captions."""

    primary_metric = "precision"

    def __init__(self, *, model: DetectorModel, clips: TaskClips, concept_weight: float) -> None:
        self.model = model
        self.clips = clips
        self.concept_weight = concept_weight

    @property
    def buckets(self) -> list[int]:
        return list(map(self.clips.bucket, self.clips.epoch_clips))

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> DetectionBatch:
        clips = [self.clips.epoch_clips[example] for example in examples]
        return DetectionBatch(*self.clips.maps(clips, mirrored=mirrored), self.clips.reference(clips))

    def num_words(self, batch: DetectionBatch) -> int:
        return int(batch.reference.sum())

    def losses(self, batch: DetectionBatch) -> dict[str, Tensor]:
        encoding = self.model.clip_encoder(batch.maps, batch.frame_is_real)
        return detector_losses(self.concept_weight, encoding, batch.reference)

    @torch.inference_mode()
    def evaluate(self) -> Mapping[str, float]:
        self.model.eval()
        encoding = self.clips.encoded(self.model.clip_encoder)
        return self.clips.judge_concepts(self.model.clip_encoder, encoding)

    def calibrate(self) -> None:
        """Nothing to calibrate."""

    @torch.inference_mode()
    def measure(self, encoding: ClipEncoding | None = None) -> Measured:
        encoding = self.clips.encoded(self.model.clip_encoder) if encoding is None else encoding
        concepts = self.clips.concepts_by_clip(encoding)
        answers = {
            clip: [concept.word for concept in clip_concepts] for clip, clip_concepts in concepts.items()
        }
        return Measured(self.clips.precision(encoding), {**answers})

    @torch.inference_mode()
    def examples(self) -> list[Example]:
        """Every validation clip with its concept words. The score is their precision."""
        self.model.eval()
        encoding = self.clips.encoded(self.model.clip_encoder)
        concepts = self.clips.concepts_by_clip(encoding)
        return [
            Example(
                clip=clip.id,
                path=clip.path,
                caption=", ".join(concept.word for concept in clip_concepts),
                references=clip.captions,
                concepts=clip_concepts,
                score=sum(concept.is_right for concept in clip_concepts) / max(len(clip_concepts), 1),
            )
            for clip in self.clips.validation
            for clip_concepts in [concepts[clip.id]]
        ]
