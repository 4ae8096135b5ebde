"""Feature maps of a clip, computed only for the frames that some run uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ctsan.video.frames import subsample
from ctsan.video.store import Maps


class ClipMaps(NamedTuple):
    """Maps of a subset of the sampled frames of a clip."""

    num_frames: int  # sampled frames
    indices: NDArray[np.int64]  # (M,), sorted indices of the sampled frames with maps
    maps: Maps  # (M, h, w, C)

    def of(self, max_frames: int) -> Maps:
        """The maps of the frames that a run with `max_frames` uses; `needed_frames` must have included it."""
        return self.maps[np.searchsorted(self.indices, subsample(self.num_frames, max_frames))]


def needed_frames(num_frames: int, max_frames: Iterable[int]) -> NDArray[np.int64]:
    """The sorted indices of the frames that any of several runs uses.

    Args:
        num_frames: the number of sampled frames.
        max_frames: the limit of each run.
    """
    return np.unique(np.concatenate([subsample(num_frames, limit) for limit in max_frames]))


def subsample_maps(maps: Maps, max_frames: int) -> Maps:
    """At most `max_frames` frames, evenly spaced over the clip."""
    return maps if len(maps) <= max_frames else maps[subsample(len(maps), max_frames)]
