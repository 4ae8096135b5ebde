"""Metrics of the concept words of trained models, for any task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ctsan.data.batches import references
from ctsan.data.corpus import Clip
from ctsan.evaluation.clip_statistics import ClipStatistic, mean_of
from ctsan.evaluation.concepts import concept_statistics
from ctsan.tasks.loaded_model import LoadedModel
from ctsan.video.store import FeatureStore

_AT_ONCE = 32


def measure_concepts(
    members: Sequence[LoadedModel[Any]], clips: Sequence[Clip], store: FeatureStore
) -> dict[str, ClipStatistic]:
    """Metrics of the concept words of captioned clips, averaged over the members with a detector, if any."""
    clips = [clip for clip in clips if clip.captions and clip.id in store]
    able = [member for member in members if member.model.clip_encoder.detector is not None]
    if not clips or not able:
        return {}
    measured = [_of_member(member, clips, store) for member in able]
    return {name: mean_of([own[name] for own in measured]) for name in measured[0]}


def _of_member(
    member: LoadedModel[Any], clips: Sequence[Clip], store: FeatureStore
) -> dict[str, ClipStatistic]:
    words, scores = [], []
    for start in range(0, len(clips), _AT_ONCE):
        encoding = member.encode([store[clip.id].maps for clip in clips[start : start + _AT_ONCE]])
        assert encoding.detection is not None  # there is a detector
        words.append(encoding.concept_words.cpu())
        scores.append(encoding.detection.scores.cpu())
    concepts = member.words.concepts
    truth = references([concepts.reference(clip.captions) for clip in clips], len(concepts.words))
    return concept_statistics(torch.cat(words), torch.cat(scores), truth)
