"""Channel means, scales and principal directions of the feature maps of training clips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ctsan.data.corpus import Clip
from ctsan.video.clip_maps import subsample_maps
from ctsan.video.store import FeatureStore

_ENOUGH_CLIPS, _ENOUGH_FRAMES = 1000, 10


class ChannelStatistics(NamedTuple):
    means: Tensor  # (C,)
    scales: Tensor  # (C,)
    directions: Tensor  # (n, C), orthonormal principal directions, in order of decreasing variance


def channel_statistics(clips: Sequence[Clip], store: FeatureStore) -> ChannelStatistics:
    """Means and scales over all cells of sampled frames; directions by PCA of standardised clip means."""
    total = squares = torch.zeros(store.channels, dtype=torch.double)
    count, clip_means = 0, []
    for clip in clips[:: max(1, len(clips) // _ENOUGH_CLIPS)]:
        values = torch.from_numpy(subsample_maps(store[clip.id].maps, _ENOUGH_FRAMES)).flatten(0, 2).double()
        total, squares = total + values.sum(dim=0), squares + values.square().sum(dim=0)
        count += len(values)
        clip_means.append(values.mean(dim=0))
    means = total / count
    scales = (squares / count - means.square()).clamp(min=0).sqrt() + 1e-3
    differences = torch.stack(clip_means)
    differences = (differences - differences.mean(dim=0)) / scales
    _, sizes, directions = torch.linalg.svd(differences, full_matrices=False)
    directions = directions[sizes > sizes[0] * 1e-6]
    # Fix the sign of each direction, which otherwise depends on the linear algebra library.
    largest = directions.abs().argmax(dim=1, keepdim=True)
    directions = directions * directions.gather(1, largest).sign()
    return ChannelStatistics(means.float(), scales.float(), directions.float())
