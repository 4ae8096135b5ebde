"""Training and validation clips as tensors, and metrics of their concept words, for all tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from ctsan.data.batches import pad_maps, references
from ctsan.data.corpus import Clip, Item
from ctsan.model.clip_encoder import BaseClipEncoder, ClipEncoder, ClipEncoding, concatenate
from ctsan.tasks.task import Example, ShownChoice, ShownClip, ShownConcept
from ctsan.text.concepts import Concepts
from ctsan.text.words import Words
from ctsan.video.clip_maps import subsample_maps
from ctsan.video.store import FeatureStore, Maps

ItemT = TypeVar("ItemT", bound=Item)

_AT_ONCE = 32  # clips per batch when encoding without gradients


class AnsweredItem(NamedTuple):
    """An answered item of a task other than description: texts for display, and the JSON output."""

    clip: str
    answer: str
    right: str
    score: float  # by the task's primary metric
    output: Mapping[str, object]
    choices: tuple[ShownChoice, ...] = ()  # this and the next two: as in `Example`
    ranked: tuple[ShownClip, ...] = ()
    num_ranked: int = 0


class HasConceptWords(Protocol):
    """An encoding of clips, as tensors or as arrays."""

    @property
    def concept_words(self) -> Any: ...  # (B, K)
    @property
    def confidences(self) -> Any: ...  # (B, K)


class TaskClips:
    """The clips of a task that have features.

    Attributes:
        train: training clips with captions.
        epoch_clips: the clips of one epoch: `train`, with each clip repeated `clip.repeat` times.

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
        self.epoch_clips = [clip for clip in self.train for _ in range(clip.repeat)]
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

    def validation_items(self, items: Iterable[ItemT]) -> list[ItemT]:
        """Select the items about validation clips."""
        clip_ids = {clip.id for clip in self.validation}
        return [item for item in items if item.clip in clip_ids]

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
        return concatenate([self._frozen[clip.id] for clip in clips])

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

    def encoded(self, encoder: BaseClipEncoder) -> ClipEncoding:
        """Encode the validation clips, one row per clip, without detections, which are large."""
        return concatenate([batch.without_detection for batch in self._encode(encoder, self.validation)])

    def precision(self, encoding: HasConceptWords, concepts: Concepts | None = None) -> dict[str, float]:
        """Share of concept words that occur in the clips' captions, and number of distinct concept words.

        Empty if no clip has concept words.

        Args:
            encoding: of the validation clips.
            concepts: the candidates of the model that encoded them; by default those of `words`.
        """
        concepts = concepts or self.words.concepts
        rows = [row for row, clip in enumerate(self.validation) if clip.captions]
        if not rows or not encoding.concept_words.shape[1]:
            return {}
        captions = [self.validation[row].captions for row in rows]
        truth = references(
            [concepts.reference(clip_captions) for clip_captions in captions], len(concepts.words)
        )
        is_word = (torch.as_tensor(encoding.confidences[rows]).cpu() > 0).double()  # may be fewer than K
        words = torch.as_tensor(encoding.concept_words[rows]).cpu()
        right = (truth.gather(1, words) * is_word).sum(dim=1)
        num_words = is_word.sum(dim=1)
        shares = (right / num_words.clamp(min=1))[num_words > 0]
        return {
            "precision": float(shares.mean()) if len(shares) else 0.0,
            "different concept words": float(len(set(words[is_word > 0].tolist()))),
        }

    def judge_concepts(self, encoder: BaseClipEncoder, encoding: ClipEncoding) -> dict[str, float]:
        """Detector precision on the validation clips and on as many training clips; empty without a detector.

        Args:
            encoding: encoded validation clips.
        """
        metrics = self.precision(encoding)
        if not metrics or not isinstance(encoder, ClipEncoder):
            return {}
        train_clips = self.train[: len(self.validation)]
        detections = (batch.detection for batch in self._encode(encoder, train_clips))
        scores = torch.cat([detection.scores for detection in detections if detection])
        truth = self.reference(train_clips).to(scores.device)
        words, confidences = encoder.top(scores)
        right = truth.gather(1, words)[confidences > 0]
        return metrics | {"precision on train": float(right.mean()) if len(right) else 0.0}

    def concepts_by_clip(self, encoding: ClipEncoding) -> dict[str, tuple[ShownConcept, ...]]:
        """Concept words of the encoded validation clips by clip id, in order of rank."""
        rows = zip(
            self.validation, encoding.concept_words.tolist(), encoding.confidences.tolist(), strict=True
        )
        return {
            clip.id: tuple(
                ShownConcept(self.words.concepts.words[word], confidence, word in self._concepts[clip.id])
                for word, confidence in zip(words, confidences, strict=True)
                if confidence > 0  # a clip may have fewer than K
            )
            for clip, words, confidences in rows
        }

    def examples(self, encoding: ClipEncoding, answered: Sequence[AnsweredItem]) -> list[Example]:
        """The first answered item of every validation clip that has one."""
        concepts = self.concepts_by_clip(encoding)
        first = {item.clip: item for item in reversed(answered)}
        return [
            Example(
                clip=clip.id,
                path=clip.path,
                caption=item.answer,
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

    @torch.no_grad()
    def _encode(self, encoder: BaseClipEncoder, clips: Sequence[Clip]) -> Iterator[ClipEncoding]:
        """Encode clips, some at a time."""
        device = encoder.candidate_words.device
        for start in range(0, len(clips), _AT_ONCE):
            batch = clips[start : start + _AT_ONCE]
            maps, frame_is_real = pad_maps([self._maps(clip, mirrored=False) for clip in batch])
            yield encoder(maps.to(device), frame_is_real.to(device))

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
        maps = features.mirrored if mirrored and features.mirrored is not None else features.maps
        return subsample_maps(maps, self.max_frames)


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


class CaptionBatch(NamedTuple):
    """Clips and the captions trained on in one step. Each clip occurs once."""

    maps: Tensor  # (B, N, h, w, C)
    frame_is_real: Tensor  # (B, N)
    reference: Tensor  # (B, V): 1 where a concept candidate is in the clip's captions
    concept_scores: Tensor  # (B, V), out of fold; (B, 0) if the detector's own scores are used
    captions: Tensor  # (M, T): words between `<bos>` and `<eos>`, then padding
    clip_of_caption: Tensor  # (M,), indices into the batch
    clips: tuple[str, ...]  # clip ids
    frozen: ClipEncoding | None = None  # cached encodings, in place of maps: see `TaskClips.freeze`


def encode_batch(encoder: BaseClipEncoder, batch: BatchOfClips) -> ClipEncoding:
    """Encode the clips of a batch, or complete their cached encodings if the encoder is frozen."""
    frozen = batch.frozen
    if frozen is None:
        encoding: ClipEncoding = encoder(batch.maps, batch.frame_is_real, batch.concept_scores)
        return encoding
    assert isinstance(encoder, ClipEncoder)
    return encoder.replace_concepts(frozen, frozen.concept_words, frozen.confidences)


def answers_by_clip(answered: Sequence[AnsweredItem]) -> dict[str, object]:
    """Outputs of the items by clip id, in the order of the items."""
    by_clip: dict[str, list[Mapping[str, object]]] = {}
    for item in answered:
        by_clip.setdefault(item.clip, []).append(item.output)
    return dict(by_clip)


def accuracy(answered: Sequence[AnsweredItem]) -> dict[str, float]:
    """Share of items answered correctly; empty without items."""
    return {"accuracy": sum(item.score for item in answered) / len(answered)} if answered else {}
