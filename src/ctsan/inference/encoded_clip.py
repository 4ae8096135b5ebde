"""A clip that was read once and can be asked about many times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ctsan.inference.featurizer import ClipFeatures
from ctsan.inference.loaded_model import ClipEncoding, LoadedModel, concatenate
from ctsan.video.given_frames import ClipInput


class EncodedClip:
    """Feature maps of a clip, and its encoding by each model, computed when the model is first asked.

    `Predictor.encode` makes one from a file. All methods of `Predictor` and `Searcher` that take a clip take
    an encoded one.
    """

    def __init__(self, features: ClipFeatures) -> None:
        self.features = features
        self._encodings: dict[LoadedModel, ClipEncoding] = {}

    @property
    def name(self) -> str:
        return self.features.clip

    @property
    def times(self) -> NDArray[np.float64]:
        """(N,), seconds in the source, of the sampled frames."""
        return self.features.times

    def encoding(self, model: LoadedModel) -> ClipEncoding:
        """The clip as a model encodes it: one row."""
        if model not in self._encodings:
            encode_together([self], model)
        return self._encodings[model]

    def is_encoded(self, model: LoadedModel) -> bool:
        return model in self._encodings

    def __repr__(self) -> str:
        return f"EncodedClip({self.name!r}, {len(self.times)} frames)"

    def _store(self, model: LoadedModel, encoding: ClipEncoding) -> None:
        self._encodings[model] = encoding


def encode_together(clips: Sequence[EncodedClip], model: LoadedModel) -> ClipEncoding:
    """Encode clips, those that are not encoded yet in one batch: one row per clip, without detections."""
    missing = list(dict.fromkeys(clip for clip in clips if not clip.is_encoded(model)))
    if missing:
        maps = [clip.features.of(model) for clip in missing]
        batch = model.encode(maps)
        for row, (clip, clip_maps) in enumerate(zip(missing, maps, strict=True)):
            clip._store(model, _unpadded(batch.of([row]), len(clip_maps)))
    return concatenate([clip.encoding(model) for clip in clips])


def _unpadded(encoding: ClipEncoding, num_frames: int) -> ClipEncoding:
    """One clip of a batch, without padded frames. It is a copy, so that the batch can be freed."""
    if encoding.detection is None:
        return encoding
    attention = encoding.detection.attention[:, :num_frames].copy()
    return replace(encoding, detection=replace(encoding.detection, attention=attention))


AnyClip = ClipInput | EncodedClip
