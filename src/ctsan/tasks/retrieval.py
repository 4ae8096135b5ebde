"""Retrieval: rank clips for the sentence written for one of them (appendix A.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ctsan.config import Negatives
from ctsan.data.corpus import QueryItem
from ctsan.evaluation.items import item_statistics
from ctsan.model.choice_model import Scored
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.pair_scores import score_pairs
from ctsan.model.retrieval_model import RetrievalModel, pairwise_margin_loss
from ctsan.tasks.clip_encoders import language_model_arguments
from ctsan.tasks.clips import CaptionBatch, TaskClips, answers_by_clip, encode_batch
from ctsan.tasks.losses import attention_losses, detector_losses
from ctsan.tasks.queries import Queries, validation_queries
from ctsan.tasks.spec import AnswerReport, ModelInputs, TaskInputs, TaskSpec
from ctsan.tasks.task import Example, Measured
from ctsan.text.sentences import encode_sentences
from ctsan.text.vocabulary import PAD


class RetrievalTask:
    """An example is a clip with some of its captions. The other clips of a batch are its negatives.

    Args:
        validation: queries for validation clips. Only clips with a query are ranked.
        margin: Δ of the loss.
        negatives: see `pairwise_margin_loss`.
    """

    primary_metric = "MRR"

    def __init__(
        self,
        *,
        model: RetrievalModel,
        clips: TaskClips,
        validation: Sequence[QueryItem],
        attention_weight: float,
        concept_weight: float,
        captions_per_clip: int,
        max_words: int,
        margin: float = 3.0,
        negatives: Negatives = "clips",
    ) -> None:
        self.model = model
        self.clips = clips
        self.attention_weight = attention_weight
        self.concept_weight = concept_weight
        self.max_words = max_words
        self.margin, self.negatives = margin, negatives
        self.queries = Queries(clips, validation)
        self._examples = [
            (clip, clip.captions[start : start + captions_per_clip])
            for clip in clips.epoch_clips
            for start in range(0, len(clip.captions), captions_per_clip)
        ]

    @property
    def buckets(self) -> list[int]:
        return [self.clips.bucket(example[0]) for example in self._examples]

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> CaptionBatch:
        drawn = [(*self._examples[example], flip) for example, flip in zip(examples, mirrored, strict=True)]
        once = {clip.id: (clip, flip) for clip, _, flip in drawn}  # clips may have several captions here
        places = {name: place for place, name in enumerate(once)}
        clips = [clip for clip, _ in once.values()]
        maps, frame_is_real = self.clips.maps(clips, mirrored=[flip for _, flip in once.values()])
        sentences = [(places[clip.id], sentence) for clip, captions, _ in drawn for sentence in captions]
        return CaptionBatch(
            maps=maps,
            frame_is_real=frame_is_real,
            reference=self.clips.reference(clips),
            concept_scores=self.clips.concept_scores(clips),
            frozen=self.clips.frozen(clips),
            captions=self._encoded([sentence for _, sentence in sentences]),
            clip_of_caption=torch.tensor([place for place, _ in sentences]),
            clips=tuple(once),
        )

    def num_words(self, batch: CaptionBatch) -> int:
        return int((batch.captions != PAD).sum())

    def losses(self, batch: CaptionBatch) -> dict[str, Tensor]:
        """Terms of the paper's loss, each a mean over captions or clips."""
        encoding = encode_batch(self.model.clip_encoder, batch)
        clips, sentences = len(batch.clips), len(batch.captions)
        rows = torch.arange(clips, device=batch.captions.device).repeat_interleave(sentences)
        queries = batch.captions.repeat(clips, 1)
        scored: Scored = self.model(queries, queries != PAD, encoding.without_detection.of(rows))
        scores = scored.scores.view(clips, sentences)[batch.clip_of_caption]  # (M, M), pairs on the diagonal
        same_clip = batch.clip_of_caption[:, None] == batch.clip_of_caption
        missed = pairwise_margin_loss(scores, same_clip, margin=self.margin, negatives=self.negatives)
        losses = {"ranking": missed.mean()}
        losses |= attention_losses(self.attention_weight, input=(scored.input_weights, queries != PAD))
        return losses | detector_losses(self.concept_weight, encoding, batch.reference)

    @torch.inference_mode()
    def evaluate(self) -> Mapping[str, float]:
        """Ranking metrics of the queries, and the detector's precision."""
        self.model.eval()
        encoding = self.clips.encoded(self.model.clip_encoder)
        metrics = self.queries.metrics(self._scores(encoding))
        return metrics | self.clips.judge_concepts(self.model.clip_encoder, encoding)

    @torch.inference_mode()
    def calibrate(self) -> None:
        """Set the scale of the scores."""
        self.model.eval()
        self.model.calibrate_scale(self._scores(self.clips.encoded(self.model.clip_encoder)))

    @torch.inference_mode()
    def measure(self, encoding: ClipEncoding | None = None) -> Measured:
        encoding = self.clips.encoded(self.model.clip_encoder) if encoding is None else encoding
        scores = self._scores(encoding)
        metrics = self.queries.metrics(scores) | self.clips.precision(encoding)
        return Measured(metrics, answers_by_clip(self.queries.answered(scores)))

    @torch.inference_mode()
    def examples(self) -> list[Example]:
        """One query per clip, with the top-ranked clips. The score is 1 / rank."""
        self.model.eval()
        encoding = self.clips.encoded(self.model.clip_encoder)
        return self.clips.examples(encoding, self.queries.answered(self._scores(encoding)))

    def _scores(self, encoding: ClipEncoding) -> Tensor:
        """Scores of all queries with all ranked clips, (Q, clips), on the CPU."""
        words = self._encoded(self.queries.texts) if self.queries.items else torch.zeros(0, 1).long()
        return score_pairs(self.model, words, self.queries.of_ranked(encoding)).cpu()

    def _encoded(self, sentences: Sequence[str]) -> Tensor:
        vocabulary = self.clips.words.vocabulary
        return torch.from_numpy(encode_sentences(sentences, vocabulary, max_words=self.max_words))


def _build_model(inputs: ModelInputs) -> RetrievalModel:
    settings = inputs.settings
    return RetrievalModel(
        **language_model_arguments(inputs),
        contrastive_init=settings.attention.contrastive_init,
        sketch_dim=settings.retrieval.sketch_dim,
        joint_dim=settings.retrieval.joint_dim,
        joint_dropout=settings.retrieval.dropout,
    )


def _build_task(inputs: TaskInputs) -> RetrievalTask:
    settings = inputs.settings
    return RetrievalTask(
        **inputs.shared_arguments,
        max_words=settings.decoding.max_words,
        validation=validation_queries(inputs),
        captions_per_clip=settings.retrieval.captions_per_clip,
        margin=settings.loss.retrieval_margin,
        negatives=settings.loss.retrieval_negatives,
    )


SPEC = TaskSpec(
    name="rank",
    help="Learn to rank clips for a sentence.",
    primary_metric=RetrievalTask.primary_metric,
    build_model=_build_model,
    build_task=_build_task,
    report=lambda inputs: AnswerReport(item_statistics("rank", inputs.answers)),
    items=(("rank", "val"),),
    answer_noun="first-ranked clips",
    split_answers=lambda answers: [answer["first"] for answer in answers],
)
