"""Training and validation clips as tensors, and metrics of their concept words, for all tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from ctsan.data.batches import pad_maps, references, subsample_maps
from ctsan.data.corpus import Clip, Item
from ctsan.model.clip_encoder import BaseClipEncoder, ClipEncoder, ClipEncoding
from ctsan.tasks.loaded_model import LoadedModel, joined
from ctsan.tasks.task import Example, ShownChoice, ShownClip, ShownConcept
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore, Maps

ItemT = TypeVar("ItemT", bound=Item)

_AT_ONCE = 32  # clips per batch when encoding without gradients


class AnsweredItem(NamedTuple):
    """An answered item of a task other than description: texts for display, and the printed form."""

    clip: str
    said: str
    right: str
    score: float  # by the task's primary metric
    printed: Mapping[str, object]
    choices: tuple[ShownChoice, ...] = ()  # this and the next two: as in `Example`
    ranked: tuple[ShownClip, ...] = ()
    num_ranked: int = 0


class TaskClips:
    """The clips of a task that have features.

    Attributes:
        train: training clips with captions.
        learnt: the clips of one epoch: `train`, with each clip repeated `clip.repeat` times.

    Args:
        out_of_fold: returns scores (V,) for each training clip from a detector not trained on it, or None.
            Called lazily at the first batch, because a checkpoint may still replace the encoder's weights.
    """

    def __init__(
        self,
        *,
        store: FeatureStore,
        words: Words,
        train: Sequence[Clip],
        validation: Sequence[Clip],
        max_frames: int,
        out_of_fold: Callable[[], Mapping[str, Tensor] | None] | None = None,
    ) -> None:
        self.store, self.words, self.max_frames = store, words, max_frames
        self._out_of_fold = None if out_of_fold is None else cache(out_of_fold)
        self.train = [clip for clip in train if clip.id in store and clip.captions]
        self.learnt = [clip for clip in self.train for _ in range(clip.repeat)]
        self.validation = [clip for clip in validation if clip.id in store]
        self._frozen_encoder: ClipEncoder | None = None
        self._frozen: dict[str, ClipEncoding] = {}  # by clip id
        self._means: dict[tuple[str, bool], Tensor] = {}  # by (clip id, mirrored)
        self._concepts = {
            clip.id: words.concepts.reference(clip.captions) for clip in (*self.train, *self.validation)
        }

    def bucket(self, clip: Clip) -> int:
        """1 for a picture (one frame), else 0.

        In a batch of clips, a picture would be padded to their length and be trivial to distinguish.
        """
        return int(self.store.manifest.clips[clip.id].frames == 1)

    def asked(self, items: Iterable[ItemT]) -> list[ItemT]:
        """Select the items about validation clips."""
        known = {clip.id for clip in self.validation}
        return [item for item in items if item.clip in known]

    def freeze(self, encoder: ClipEncoder) -> None:
        """Encode the training clips once, with a frozen encoder. Batches then hold no maps.

        Clips are encoded lazily at the first batch, because a checkpoint may still replace the encoder's
        weights. Concept words come from the out-of-fold scores, if there are any.
        """
        self._frozen_encoder = encoder

    def frozen(self, clips: Sequence[Clip]) -> ClipEncoding | None:
        """Cached encodings of training clips, one row per clip, without concept embeddings.

        None without a frozen encoder.
        """
        if self._frozen_encoder is None:
            return None
        if not self._frozen:
            self._frozen = self._encode_frozen(self._frozen_encoder)
        return joined([self._frozen[clip.id] for clip in clips])

    @torch.no_grad()
    def _encode_frozen(self, encoder: ClipEncoder) -> dict[str, ClipEncoding]:
        encodings: dict[str, ClipEncoding] = {}
        device = encoder.candidate_words.device
        encoder.eval()
        for start in range(0, len(self.train), _AT_ONCE):
            clips = self.train[start : start + _AT_ONCE]
            maps, frame_is_real = pad_maps([self._maps(clip, mirrored=False) for clip in clips])
            scores = self.concept_scores(clips)
            encoding = encoder(maps.to(device), frame_is_real.to(device), scores.to(device))
            small = encoding._replace(concepts=encoding.concepts[:, :0], detection=None)
            small = small.to(torch.device("cpu"))
            encodings |= {clip.id: small.of(torch.tensor([row])) for row, clip in enumerate(clips)}
        return encodings

    def maps(self, clips: Sequence[Clip], *, mirrored: Sequence[bool]) -> tuple[Tensor, Tensor]:
        """Padded maps (B, N, h, w, C) and `frame_is_real` (B, N); both (B, 0) with a frozen encoder."""
        if self._frozen_encoder is not None:
            return torch.zeros(len(clips), 0), torch.zeros(len(clips), 0, dtype=torch.bool)
        return pad_maps([self._maps(clip, mirrored=flip) for clip, flip in zip(clips, mirrored, strict=True)])

    def means(self, clips: Sequence[Clip], *, mirrored: Sequence[bool]) -> Tensor:
        """Mean features as maps of one frame and one cell, (B, 1, 1, 1, C). They are cached."""
        return torch.stack(
            [self._mean(clip, mirrored=flip) for clip, flip in zip(clips, mirrored, strict=True)]
        )

    def reference(self, clips: Sequence[Clip]) -> Tensor:
        """p* of the paper, (B, V)."""
        return references([self._concepts[clip.id] for clip in clips], len(self.words.concepts.words))

    def concept_scores(self, clips: Sequence[Clip]) -> Tensor:
        """Out-of-fold scores that select the concept words of training clips, (B, V).

        (B, 0) without such scores: the detector's own scores select the words.
        """
        scores = None if self._out_of_fold is None else self._out_of_fold()
        if scores is None:
            return torch.zeros(len(clips), 0)
        return torch.stack([scores[clip.id] for clip in clips]).float()

    def encoded(self, members: Sequence[LoadedModel[Any]]) -> list[ClipEncoding]:
        """Encode the validation clips with each member, one row per clip."""
        parts: list[list[ClipEncoding]] = [[] for _ in members]
        for maps in self._some_at_once(self.validation):
            for member, own in zip(members, parts, strict=True):
                own.append(member.encode(maps)._replace(detection=None))  # the detection is large
        return [joined(own) for own in parts]

    def precision(
        self, members: Sequence[LoadedModel[Any]], encodings: Sequence[ClipEncoding]
    ) -> dict[str, float]:
        """Share of concept words that occur in the clips' captions, and number of distinct concept words.

        Both are means over the members with a detector; empty if there is none.

        Args:
            encodings: the result of `encoded`.
        """
        rows = [row for row, clip in enumerate(self.validation) if clip.captions]
        captions = [self.validation[row].captions for row in rows]
        found, different = [], []
        for member, encoding in zip(members, encodings, strict=True):
            concepts = member.words.concepts
            if rows and member.model.clip_encoder.detector is not None:
                truth = references([concepts.reference(said) for said in captions], len(concepts.words))
                is_word = (encoding.confidences[rows].cpu() > 0).double()  # a clip may have fewer than K
                right = (truth.gather(1, encoding.concept_words[rows].cpu()) * is_word).sum(dim=1)
                given = is_word.sum(dim=1)
                shares = (right / given.clamp(min=1))[given > 0]
                found.append(float(shares.mean()) if len(shares) else 0.0)
                different.append(len(set(encoding.concept_words[rows].cpu()[is_word > 0].tolist())))
        if not found:
            return {}
        return {
            "precision": sum(found) / len(found),
            "different concept words": sum(different) / len(different),
        }

    def judge_concepts(self, member: LoadedModel[Any], encoding: ClipEncoding) -> dict[str, float]:
        """Detector precision on the validation clips and on as many training clips; empty without a detector.

        Args:
            encoding: encoded validation clips.
        """
        encoder = member.model.clip_encoder
        metrics = self.precision([member], [encoding])
        if not metrics:
            return {}
        seen = self.train[: len(self.validation)]
        known = self._scores(member, seen)
        truth = self.reference(seen).to(known.device)
        words, confidences = encoder.top(known)
        right = truth.gather(1, words)[confidences > 0]
        return metrics | {"precision on train": float(right.mean()) if len(right) else 0.0}

    def shown_concepts(self, encoding: ClipEncoding) -> dict[str, tuple[ShownConcept, ...]]:
        """Concept words of the encoded validation clips by clip id, in order of rank."""
        found = zip(
            self.validation, encoding.concept_words.tolist(), encoding.confidences.tolist(), strict=True
        )
        return {
            clip.id: tuple(
                ShownConcept(self.words.concepts.words[word], confidence, word in self._concepts[clip.id])
                for word, confidence in zip(words, confidences, strict=True)
                if confidence > 0  # a clip may have fewer than K
            )
            for clip, words, confidences in found
        }

    def examples(self, encoding: ClipEncoding, answered: Sequence[AnsweredItem]) -> list[Example]:
        """The first answered item of every validation clip that has one."""
        concepts = self.shown_concepts(encoding)
        first = {item.clip: item for item in reversed(answered)}
        return [
            Example(
                clip=clip.id,
                path=clip.path,
                caption=item.said,
                references=(item.right,),
                concepts=concepts[clip.id],
                score=item.score,
                choices=item.choices,
                ranked=item.ranked,
                num_ranked=item.num_ranked,
            )
            for clip in self.validation
            if (item := first.get(clip.id))
        ]

    def _scores(self, member: LoadedModel[Any], clips: Sequence[Clip]) -> Tensor:
        """Detector scores of all candidates, (B, V)."""
        found = (member.encode(maps).detection for maps in self._some_at_once(clips))
        return torch.cat([detection.scores for detection in found if detection])

    def _some_at_once(self, clips: Sequence[Clip]) -> Iterator[list[Maps]]:
        for start in range(0, len(clips), _AT_ONCE):
            yield [self.store[clip.id].maps for clip in clips[start : start + _AT_ONCE]]

    def _mean(self, clip: Clip, *, mirrored: bool) -> Tensor:
        """Mean feature of a clip, (1, 1, 1, C)."""
        key = clip.id, mirrored
        if key not in self._means:
            maps, frame_is_real = self.maps([clip], mirrored=[mirrored])
            self._means[key] = maps[frame_is_real].mean(dim=(0, 1, 2))[None, None, None]
        return self._means[key]

    def _maps(self, clip: Clip, *, mirrored: bool) -> Maps:
        """Maps of a clip; the mirrored ones if requested and stored."""
        features = self.store[clip.id]
        chosen = features.mirrored if mirrored and features.mirrored is not None else features.maps
        return subsample_maps(chosen, self.max_frames)


class BatchOfClips(Protocol):
    """Fields common to the batches of all tasks with a clip encoder."""

    @property
    def maps(self) -> Tensor: ...
    @property
    def frame_is_real(self) -> Tensor: ...
    @property
    def concept_scores(self) -> Tensor: ...
    @property
    def frozen(self) -> ClipEncoding | None: ...


def encode_batch(encoder: BaseClipEncoder, batch: BatchOfClips) -> ClipEncoding:
    """Encode the clips of a batch, or complete their cached encodings if the encoder is frozen."""
    frozen = batch.frozen
    if frozen is None:
        encoding: ClipEncoding = encoder(batch.maps, batch.frame_is_real, batch.concept_scores)
        return encoding
    assert isinstance(encoder, ClipEncoder)
    return encoder.replace_concepts(frozen, frozen.concept_words, frozen.confidences)


def printed(answered: Sequence[AnsweredItem]) -> dict[str, object]:
    """Printed answers by clip id, in the order of the items."""
    by_clip: dict[str, list[Mapping[str, object]]] = {}
    for item in answered:
        by_clip.setdefault(item.clip, []).append(item.printed)
    return dict(by_clip)


def accuracy(answered: Sequence[AnsweredItem]) -> dict[str, float]:
    """Share of items answered correctly; empty without items."""
    return {"accuracy": sum(item.score for item in answered) / len(answered)} if answered else {}
