"""Movie description: learn to say one sentence of a clip (section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ctsan.data.batches import CaptionBatch, encode_captions, pad_words
from ctsan.data.corpus import Clip
from ctsan.evaluation.captions import caption_scores, cider_of_each
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.description_model import DescriptionModel
from ctsan.tasks.clips import TaskClips
from ctsan.tasks.losses import attention_losses, detector_losses
from ctsan.tasks.task import Example, ShownConcept
from ctsan.text.vocabulary import BLANK, BOS, EOS, PAD, UNK

NEVER_SAID = (PAD, UNK, BLANK)


class DescriptionTask:
    """An example is a clip with some of its captions: it is encoded once, however many there are.

    Args:
        captions_per_clip: how many of a clip's captions are learnt at once; the rest are further examples.
    """

    primary_metric = "CIDEr"

    def __init__(
        self,
        *,
        model: DescriptionModel,
        clips: TaskClips,
        attention_weight: float,
        concept_weight: float,
        label_smoothing: float,
        captions_per_clip: int,
        beam: int,
        max_words: int,
        length_penalty: float,
    ) -> None:
        self.model = model
        self.clips = clips
        self.attention_weight = attention_weight
        self.concept_weight = concept_weight
        self.label_smoothing = label_smoothing
        self.beam, self.max_words, self.length_penalty = beam, max_words, length_penalty
        self._vocabulary = clips.words.vocabulary
        self._examples = [
            (clip, encoded[start : start + captions_per_clip])
            for clip in clips.train
            for encoded in [encode_captions(clip.captions, self._vocabulary, max_words=max_words)]
            for start in range(0, len(encoded), captions_per_clip)
        ]

    @property
    def num_examples(self) -> int:
        return len(self._examples)

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> CaptionBatch:
        clips, captions = zip(*(self._examples[example] for example in examples), strict=True)
        maps, frame_is_real = self.clips.maps(clips, mirrored=mirrored)
        counts = torch.tensor([len(sentences) for sentences in captions])
        return CaptionBatch(
            maps=maps,
            frame_is_real=frame_is_real,
            reference=self.clips.reference(clips),
            captions=pad_words([words for sentences in captions for words in sentences]),
            clip_of_caption=torch.arange(len(clips)).repeat_interleave(counts),
        )

    def num_words(self, batch: CaptionBatch) -> int:
        return int((batch.captions[:, 1:] != PAD).sum())

    def losses(self, batch: CaptionBatch) -> dict[str, Tensor]:
        """The terms of eq. 14, each a mean over clips; a clip's captions count alike."""
        encoding = self.model.clip_encoder(batch.maps, batch.frame_is_real, batch.reference)
        said, following = batch.captions[:, :-1], batch.captions[:, 1:]  # (M, T)
        decoded = self.model(said, encoding.of(batch.clip_of_caption))

        def over_clips(values: Tensor) -> Tensor:
            """Of one value a caption, (M,)."""
            captions = torch.bincount(batch.clip_of_caption)
            return (values / captions[batch.clip_of_caption]).sum() / len(batch.maps)

        likelihood = F.cross_entropy(
            decoded.scores.flatten(0, 1),
            following.flatten(),
            ignore_index=PAD,
            reduction="none",
            label_smoothing=self.label_smoothing,
        )
        losses = {"words": over_clips(likelihood.view_as(following).sum(dim=1))}
        steps = following != PAD
        losses |= attention_losses(
            self.attention_weight,
            input=(decoded.input_weights, steps),
            output=(decoded.output_weights, steps),
            mean=over_clips,
        )
        return losses | detector_losses(self.concept_weight, encoding, batch.reference)

    @torch.inference_mode()
    def evaluate(self) -> Mapping[str, float]:
        """Caption metrics on validation, and the detector's precision there and on as many training clips."""
        self.model.eval()
        captions: dict[str, str] = {}
        scores: list[Tensor] = []
        for clips, encoding in self.clips.encoded(self.model.clip_encoder, self.clips.validation):
            captions |= self._captions_of(clips, encoding)
            if encoding.detection is not None:
                scores.append(encoding.detection.scores.cpu())
        metrics = caption_scores({clip.id: clip.captions for clip in self.clips.validation}, captions)
        if scores:
            metrics |= self.clips.judge_concepts(self.model.clip_encoder, torch.cat(scores))
        return metrics

    @torch.inference_mode()
    def examples(self) -> list[Example]:
        """Every validation clip with its caption, its concept words and its own CIDEr."""
        self.model.eval()
        captions: dict[str, str] = {}
        concepts: dict[str, tuple[ShownConcept, ...]] = {}
        for clips, encoding in self.clips.encoded(self.model.clip_encoder, self.clips.validation):
            captions |= self._captions_of(clips, encoding)
            concepts |= self.clips.shown_concepts(clips, encoding)
        scores = cider_of_each({clip.id: clip.captions for clip in self.clips.validation}, captions)
        return [
            Example(
                clip=clip.id,
                path=clip.path,
                caption=captions[clip.id],
                references=clip.captions,
                concepts=concepts[clip.id],
                score=scores[clip.id],
            )
            for clip in self.clips.validation
        ]

    def _captions_of(self, clips: Sequence[Clip], encoding: ClipEncoding) -> dict[str, str]:
        """The best sentence for each clip, by its id."""
        found = self.model.describe(
            encoding,
            begin=BOS,
            end=EOS,
            never=NEVER_SAID,
            beam=self.beam,
            max_words=self.max_words,
            length_penalty=self.length_penalty,
        )
        return {
            clip.id: " ".join(self._vocabulary.decode(sentences[0].words))
            for clip, sentences in zip(clips, found, strict=True)
        }
