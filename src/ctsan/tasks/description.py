"""Movie description: generate one sentence for a clip (section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ctsan.baselines.mean_pooling import MeanPooling
from ctsan.config import DecodingSettings, RerankSettings
from ctsan.data.batches import encode_captions, pad_words
from ctsan.data.corpus import Clip
from ctsan.evaluation.captions import caption_scores, cider_by_clip
from ctsan.evaluation.clip_statistics import ClipStatistic
from ctsan.evaluation.coco_metrics import score_captions, score_systems
from ctsan.evaluation.diversity import diversity
from ctsan.evaluation.grammar import faulty_share, grammar_fault
from ctsan.model.beam_search import beam_search
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.description_model import CaptionSteps, DescriptionModel
from ctsan.tasks.clip_encoders import build_decoder, language_model_arguments, output_arguments
from ctsan.tasks.clips import CaptionBatch, TaskClips, encode_batch
from ctsan.tasks.losses import attention_losses, detector_losses, mean_over_clips
from ctsan.tasks.spec import AnswerReport, Answers, ModelInputs, ReportInputs, TaskInputs, TaskSpec
from ctsan.tasks.task import Example, Measured
from ctsan.text.vocabulary import BLANK, BOS, EOS, NEVER_SAID, PAD

_CLIPS_AT_ONCE = 32
# First token of the captions of external clips, in place of <bos>: the model learns their content without
# adopting their style. No caption contains this token.
_EXTERNAL_BOS = BLANK


class Captioned(NamedTuple):
    """A clip with the captions trained on in one step, as word ids."""

    clip: Clip
    captions: list[list[int]]


class DescriptionTask:
    """An example is a clip with some of its captions, so that it is encoded once for all of them.

    An example may also be several pictures, because these have few captions and are cheap to encode.

    Args:
        captions_per_clip: captions of a clip per example; the rest form further examples. Pictures are
            grouped so that an example has about as many captions.
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
        decoding: DecodingSettings,
        rerank: RerankSettings | None = None,
    ) -> None:
        self.model = model
        self.clips = clips
        self.attention_weight = attention_weight
        self.concept_weight = concept_weight
        self.label_smoothing = label_smoothing
        self.decoding = decoding
        self.rerank = rerank  # for evaluation beside joint embeddings
        self._vocabulary = clips.words.vocabulary
        self.references = {clip.id: clip.captions for clip in clips.validation if clip.captions}
        self._begins = {clip.id: _EXTERNAL_BOS if clip.external else BOS for clip in clips.train}
        self._examples = self._clips_with_captions(captions_per_clip)

    @property
    def buckets(self) -> list[int]:
        return [self.clips.bucket(example[0].clip) for example in self._examples]

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> CaptionBatch:
        rows = [
            (*clip_and_captions, flip)
            for example, flip in zip(examples, mirrored, strict=True)
            for clip_and_captions in self._examples[example]
        ]
        clips, captions, flips = zip(*rows, strict=True)
        if isinstance(self.model.clip_encoder, MeanPooling):  # cached means are enough
            maps = self.clips.means(clips, mirrored=flips)
            frame_is_real = torch.ones(maps.shape[:2], dtype=torch.bool)
        else:
            maps, frame_is_real = self.clips.maps(clips, mirrored=flips)
        counts = torch.tensor([len(sentences) for sentences in captions])
        return CaptionBatch(
            maps=maps,
            frame_is_real=frame_is_real,
            reference=self.clips.reference(clips),
            concept_scores=self.clips.concept_scores(clips),
            frozen=self.clips.frozen(clips),
            captions=pad_words([words for sentences in captions for words in sentences]),
            clip_of_caption=torch.arange(len(clips)).repeat_interleave(counts),
            clips=tuple(clip.id for clip in clips),
        )

    def num_words(self, batch: CaptionBatch) -> int:
        return int((batch.captions[:, 1:] != PAD).sum())

    def losses(self, batch: CaptionBatch) -> dict[str, Tensor]:
        """Terms of eq. 14, each a mean over clips of the mean over a clip's captions."""
        encoding = encode_batch(self.model.clip_encoder, batch)
        words, following = batch.captions[:, :-1], batch.captions[:, 1:]  # (M, T)
        steps = following != PAD
        decoded = self.model(words, encoding.without_detection.of(batch.clip_of_caption), steps)

        over_clips = mean_over_clips(batch.clip_of_caption)
        likelihood = _caption_losses(decoded.scores, following, label_smoothing=self.label_smoothing)
        losses = {"words": over_clips(likelihood)}
        losses |= attention_losses(
            self.attention_weight,
            input=(decoded.input_weights, steps),
            output=(decoded.output_weights, steps),
            mean=over_clips,
        )
        return losses | detector_losses(self.concept_weight, encoding, batch.reference)

    @torch.inference_mode()
    def evaluate(self) -> Mapping[str, float]:
        """Caption metrics on validation clips; detector precision on these and on as many training clips."""
        self.model.eval()
        encoding = self.clips.encoded(self.model.clip_encoder)
        metrics = caption_scores(self.references, self._captions(encoding))
        return metrics | self.clips.judge_concepts(self.model.clip_encoder, encoding)

    def calibrate(self) -> None:
        """Nothing to calibrate."""

    @torch.inference_mode()
    def measure(self, encoding: ClipEncoding | None = None) -> Measured:
        encoding = self.clips.encoded(self.model.clip_encoder) if encoding is None else encoding
        captions = self._captions(encoding)
        metrics = caption_scores(self.references, captions)
        return Measured(metrics | self.clips.precision(encoding), {**captions})

    @torch.inference_mode()
    def examples(self) -> list[Example]:
        """Every validation clip with its caption, concept words and per-clip CIDEr."""
        self.model.eval()
        encoding = self.clips.encoded(self.model.clip_encoder)
        captions = self._captions(encoding)
        concepts = self.clips.concepts_by_clip(encoding)
        scores = cider_by_clip(self.references, captions)
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
            if clip.id in captions
        ]

    def _training_captions(self, clip: Clip) -> Sequence[str]:
        """Training captions. With `skip_faulty`, those without a grammar fault, or all if each has one."""
        if not self.decoding.skip_faulty:
            return clip.captions
        return [caption for caption in clip.captions if grammar_fault(caption) is None] or clip.captions

    def _clips_with_captions(self, captions_per_clip: int) -> list[tuple[Captioned, ...]]:
        """All examples: each is a clip with some of its captions, or several pictures with theirs."""
        examples: list[tuple[Captioned, ...]] = []
        pictures: list[Captioned] = []
        for clip in self.clips.epoch_clips:
            encoded = [
                [self._begins[clip.id], *words]
                for _, *words in encode_captions(
                    self._training_captions(clip), self._vocabulary, max_words=self.decoding.max_words
                )
            ]
            parts = [
                Captioned(clip, encoded[start : start + captions_per_clip])
                for start in range(0, len(encoded), captions_per_clip)
            ]
            if self.clips.bucket(clip) == 0:
                examples += [(part,) for part in parts]
            else:
                pictures += parts
        most = max((len(picture.captions) for picture in pictures), default=1)
        at_once = max(1, captions_per_clip // most)
        examples += [tuple(pictures[start : start + at_once]) for start in range(0, len(pictures), at_once)]
        return examples

    def _captions(self, encoding: ClipEncoding) -> dict[str, str]:
        """The best sentence for each captioned validation clip, by its id."""
        rows = [row for row, clip in enumerate(self.clips.validation) if clip.id in self.references]
        words, decoding = self._vocabulary.words, self.decoding
        captions = {}
        for start in range(0, len(rows), _CLIPS_AT_ONCE):
            batch = rows[start : start + _CLIPS_AT_ONCE]
            part = encoding.of(torch.tensor(batch, device=encoding.concepts.device))
            hypotheses = beam_search(
                CaptionSteps(self.model, part),
                begin=BOS,
                end=EOS,
                never=NEVER_SAID,
                beam=decoding.beam,
                n_best=decoding.beam if decoding.skip_faulty else 1,
                max_words=decoding.max_words,
                length_penalty=decoding.length_penalty,
                no_repeat_ngram=decoding.no_repeat_ngram,
            )
            for row, of_clip in zip(batch, hypotheses, strict=True):
                texts = [" ".join(words[word] for word in sentence.words) for sentence in of_clip]
                sound = (text for text in texts if not decoding.skip_faulty or grammar_fault(text) is None)
                captions[self.clips.validation[row].id] = next(sound, texts[0])
        return captions


def _caption_losses(scores: Tensor, following: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """Negative log-likelihood of each caption, (M,).

    Args:
        scores: (n, words), logits of the n real steps of all captions.
        following: (M, T), target words, padded.
    """
    steps = following != PAD
    words = F.cross_entropy(scores, following[steps], reduction="none", label_smoothing=label_smoothing)
    return words.new_zeros(following.shape).masked_scatter(steps, words).sum(dim=1)


def _build_model(inputs: ModelInputs) -> DescriptionModel:
    shared = language_model_arguments(inputs)
    decoder = build_decoder(inputs.settings, shared["clip_encoder"])
    return DescriptionModel(**shared, **output_arguments(inputs.settings), decoder=decoder)


def _build_task(inputs: TaskInputs) -> DescriptionTask:
    settings = inputs.settings
    return DescriptionTask(
        **inputs.shared_arguments,
        label_smoothing=settings.loss.label_smoothing,
        captions_per_clip=settings.training.captions_per_clip,
        decoding=settings.decoding,
        rerank=settings.rerank,
    )


def _report(inputs: ReportInputs) -> AnswerReport:
    references = {clip.id: clip.captions for clip in inputs.clips if clip.id in inputs.answers}
    statistics, tokeniser, notes = score_captions(references, inputs.answers, java=inputs.java)
    metrics = diversity(references, inputs.answers, inputs.training)
    metrics["grammar faults"] = faulty_share(inputs.answers.values())
    return AnswerReport(statistics, metrics, tokeniser, notes)


def _compare(
    answers: Mapping[str, Answers], clips: Sequence[Clip], java: Path | None
) -> dict[str, dict[str, ClipStatistic]]:
    """Score all systems with one Java call, without METEOR, which is slow."""
    captioned = set().union(*answers.values())
    references = {clip.id: clip.captions for clip in clips if clip.id in captioned}
    scores = score_systems(references, answers, java=java, meteor=False)
    return {system: scores[system].statistics for system in answers}


SPEC = TaskSpec(
    name="describe",
    help="Learn to describe clips in a sentence.",
    primary_metric=DescriptionTask.primary_metric,
    build_model=_build_model,
    build_task=_build_task,
    report=_report,
    needs_java=True,
    answer_noun="captions",
    split_answers=lambda caption: [caption],
    compare=_compare,
    replaces_decoder=True,
)
