"""Metrics of the concept words of a trained model, for any task."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ctsan.data.batches import pad_maps, references
from ctsan.data.corpus import Clip
from ctsan.evaluation.clip_statistics import ClipStatistic
from ctsan.evaluation.concepts import concept_statistics
from ctsan.model.clip_encoder import BaseClipEncoder
from ctsan.text.concepts import Concepts
from ctsan.video.clip_maps import subsample_maps
from ctsan.video.store import FeatureStore

_AT_ONCE = 32


@torch.inference_mode()
def measure_concepts(
    encoder: BaseClipEncoder,
    concepts: Concepts,
    clips: Sequence[Clip],
    store: FeatureStore,
    *,
    max_frames: int,
) -> dict[str, ClipStatistic]:
    """Metrics of the concept words of captioned clips; none without a detector."""
    clips = [clip for clip in clips if clip.captions and clip.id in store]
    if not clips or encoder.detector is None:
        return {}
    device = encoder.candidate_words.device
    words, scores = [], []
    for start in range(0, len(clips), _AT_ONCE):
        batch = clips[start : start + _AT_ONCE]
        maps, frame_is_real = pad_maps([subsample_maps(store[clip.id].maps, max_frames) for clip in batch])
        encoding = encoder(maps.to(device), frame_is_real.to(device))
        words.append(encoding.concept_words.cpu())
        scores.append(encoding.detection.scores.cpu())
    truth = references([concepts.reference(clip.captions) for clip in clips], len(concepts.words))
    return concept_statistics(torch.cat(words), torch.cat(scores), truth)
