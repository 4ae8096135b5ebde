"""Feature maps of a clip: only of the frames that some run takes in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ctsan.video.frames import subsample
from ctsan.video.store import Maps


class ClipMaps(NamedTuple):
    """Maps of some of the frames that were sampled of a clip."""

    num_frames: int  # that were sampled
    places: NDArray[np.int64]  # (M,), of the frames with maps among them, in rising order
    maps: Maps  # (M, h, w, C)

    def of(self, max_frames: int) -> Maps:
        """The maps of the frames that a run takes in, one of those that `places` were made for."""
        return self.maps[np.searchsorted(self.places, subsample(self.num_frames, max_frames))]


def needed_frames(num_frames: int, max_frames: Iterable[int]) -> NDArray[np.int64]:
    """The places of the frames that any run takes in: runs of ten frames need no maps of forty.

    Args:
        num_frames: that were sampled.
        max_frames: of each run.
    """
    return np.unique(np.concatenate([subsample(num_frames, most) for most in max_frames]))
