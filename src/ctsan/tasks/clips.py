"""Training and validation clips as tensors, and what every task asks of their concept words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ctsan.data.batches import pad_maps, references, thin
from ctsan.data.corpus import Clip
from ctsan.evaluation.concepts import precision_at_k
from ctsan.model.clip_encoder import ClipEncoder, ClipEncoding, matching_noise
from ctsan.tasks.task import Example, ShownConcept
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore, Maps

_AT_ONCE = 32  # clips that are encoded together when nothing is learnt


class ItemExample(NamedTuple):
    """An item of the other tasks with an answer, as sentences to look at."""

    clip: str
    said: str
    right: str
    is_right: bool


class TaskClips:
    """The captioned clips of a task that have features."""

    def __init__(
        self,
        *,
        store: FeatureStore,
        words: Words,
        train: Sequence[Clip],
        validation: Sequence[Clip],
        max_frames: int,
    ) -> None:
        self.store, self.words, self.max_frames = store, words, max_frames
        self.train = [clip for clip in train if clip.id in store and clip.captions]
        self.validation = [clip for clip in validation if clip.id in store and clip.captions]
        self._concepts = {
            clip.id: words.concepts.reference(clip.captions) for clip in (*self.train, *self.validation)
        }

    def maps(self, clips: Sequence[Clip], *, mirrored: Sequence[bool] | None = None) -> tuple[Tensor, Tensor]:
        """Padded maps (B, N, h, w, C), and which frames are real (B, N)."""
        flips = mirrored or [False] * len(clips)
        return pad_maps([self._maps(clip, mirrored=flip) for clip, flip in zip(clips, flips, strict=True)])

    def reference(self, clips: Sequence[Clip]) -> Tensor:
        """p* of the paper, (B, V)."""
        return references([self._concepts[clip.id] for clip in clips], len(self.words.concepts.words))

    def encoded(
        self, encoder: ClipEncoder, clips: Sequence[Clip]
    ) -> Iterator[tuple[Sequence[Clip], ClipEncoding]]:
        """Some clips at a time, encoded as they are when a model is asked about them."""
        device = encoder.candidate_words.device
        for start in range(0, len(clips), _AT_ONCE):
            some = clips[start : start + _AT_ONCE]
            maps, frame_is_real = self.maps(some)
            yield some, encoder(maps.to(device), frame_is_real.to(device))

    def shown_concepts(
        self, clips: Sequence[Clip], encoding: ClipEncoding
    ) -> dict[str, tuple[ShownConcept, ...]]:
        """The concept words of encoded clips, the surest first, by the clips' ids."""
        found = zip(clips, encoding.concept_words.tolist(), encoding.confidences.tolist(), strict=True)
        return {
            clip.id: tuple(
                ShownConcept(self.words.concepts.words[word], confidence, word in self._concepts[clip.id])
                for word, confidence in zip(words, confidences, strict=True)
            )
            for clip, words, confidences in found
        }

    def judge_concepts(self, encoder: ClipEncoder, scores: Tensor | None = None) -> dict[str, float]:
        """The detector's precision on validation and on as many training clips; nothing without a detector.

        The encoder is told how much they differ: see `unreliable`.

        Args:
            scores: (B, V), of the validation clips, if they are there already.
        """
        if encoder.detector is None:
            return {}
        k, seen = encoder.num_concepts, self.train[: len(self.validation)]
        known, truth = self._scores(encoder, seen), self.reference(seen)
        scores = self._scores(encoder, self.validation) if scores is None else scores
        precision = precision_at_k(scores, self.reference(self.validation), k)
        encoder.word_noise.fill_(matching_noise(known, truth, num_concepts=k, precision=precision))
        return {"precision": precision, "precision on train": precision_at_k(known, truth, k)}

    def examples(self, encoder: ClipEncoder, answered: Sequence[ItemExample]) -> list[Example]:
        """The first answered item of every validation clip that has one."""
        concepts: dict[str, tuple[ShownConcept, ...]] = {}
        for clips, encoding in self.encoded(encoder, self.validation):
            concepts |= self.shown_concepts(clips, encoding)
        first = {item.clip: item for item in reversed(answered)}
        return [
            Example(
                clip=clip.id,
                path=clip.path,
                caption=item.said,
                references=(item.right,),
                concepts=concepts[clip.id],
                score=float(item.is_right),
            )
            for clip in self.validation
            if (item := first.get(clip.id))
        ]

    def _scores(self, encoder: ClipEncoder, clips: Sequence[Clip]) -> Tensor:
        """Of all candidates, (B, V)."""
        found = (encoding.detection for _, encoding in self.encoded(encoder, clips))
        return torch.cat([detection.scores.cpu() for detection in found if detection])

    def _maps(self, clip: Clip, *, mirrored: bool) -> Maps:
        """Mirrored ones where they are wanted and stored."""
        features = self.store[clip.id]
        chosen = features.mirrored if mirrored and features.mirrored is not None else features.maps
        return thin(chosen, self.max_frames)
