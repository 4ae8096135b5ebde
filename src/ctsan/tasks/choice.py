"""Multiple choice: select the sentence that was written for a clip (appendix A.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ctsan.data.corpus import ChoiceItem
from ctsan.evaluation.items import item_statistics
from ctsan.model.choice_model import ChoiceModel, Scored, margin_loss
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.tasks.clip_encoders import language_model_arguments
from ctsan.tasks.clips import AnsweredItem, TaskClips, accuracy, answers_by_clip, encode_batch
from ctsan.tasks.losses import attention_losses, detector_losses, mean_over_clips
from ctsan.tasks.spec import ITEMS_PER_CLIP, AnswerReport, ModelInputs, TaskInputs, TaskSpec
from ctsan.tasks.task import Example, Measured, ShownChoice
from ctsan.text.sentences import encode_sentences
from ctsan.text.vocabulary import PAD

_SENTENCES_AT_ONCE = 500
_SENTENCES_PER_QUESTION = 5


class ChoiceBatch(NamedTuple):
    """Clips and questions about them, all with the same number of choices. Each clip occurs once."""

    maps: Tensor  # (B, N, h, w, C)
    frame_is_real: Tensor  # (B, N)
    reference: Tensor  # (B, V): 1 where a concept candidate is in the clip's captions
    concept_scores: Tensor  # (B, V), out of fold; (B, 0) if the detector's own scores are used
    sentences: Tensor  # (Q choices, T), padded; the choices of a question are consecutive
    answers: Tensor  # (Q,)
    clip_of_question: Tensor  # (Q,), indices into the batch
    frozen: ClipEncoding | None = None  # as in `CaptionBatch`


class ChoiceTask:
    """An example is a clip with some of its questions. All questions have the same number of choices.

    Args:
        train: questions about the training clips.
        validation: questions about the validation clips.
        margin: Δ of the loss.
    """

    primary_metric = "accuracy"

    def __init__(
        self,
        *,
        model: ChoiceModel,
        clips: TaskClips,
        train: Sequence[ChoiceItem],
        validation: Sequence[ChoiceItem],
        attention_weight: float,
        concept_weight: float,
        questions_per_clip: int,
        max_words: int,
        margin: float = 1.0,
    ) -> None:
        self.model = model
        self.clips = clips
        self.attention_weight = attention_weight
        self.concept_weight = concept_weight
        self.max_words = max_words
        self.margin = margin
        self.items = clips.validation_items(validation)
        items_by_clip: dict[str, list[ChoiceItem]] = {}
        for item in train:
            items_by_clip.setdefault(item.clip, []).append(item)
        self._examples = [
            (clip, items[start : start + questions_per_clip])
            for clip in clips.epoch_clips
            for items in [items_by_clip.get(clip.id, [])]
            for start in range(0, len(items), questions_per_clip)
        ]

    @property
    def buckets(self) -> list[int]:
        return [self.clips.bucket(example[0]) for example in self._examples]

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> ChoiceBatch:
        clips, questions = zip(*(self._examples[example] for example in examples), strict=True)
        maps, frame_is_real = self.clips.maps(clips, mirrored=mirrored)
        items = [item for clip_questions in questions for item in clip_questions]
        counts = torch.tensor([len(clip_questions) for clip_questions in questions])
        return ChoiceBatch(
            maps=maps,
            frame_is_real=frame_is_real,
            reference=self.clips.reference(clips),
            concept_scores=self.clips.concept_scores(clips),
            frozen=self.clips.frozen(clips),
            sentences=self._encoded([sentence for item in items for sentence in item.choices]),
            answers=torch.tensor([item.answer for item in items]),
            clip_of_question=torch.arange(len(clips)).repeat_interleave(counts),
        )

    def num_words(self, batch: ChoiceBatch) -> int:
        return int((batch.sentences != PAD).sum())

    def losses(self, batch: ChoiceBatch) -> dict[str, Tensor]:
        """Terms of the paper's loss, each a mean over clips of the mean over a clip's questions."""
        encoding = encode_batch(self.model.clip_encoder, batch)
        is_real = batch.sentences != PAD
        num_choices = len(batch.sentences) // len(batch.answers)
        rows = batch.clip_of_question.repeat_interleave(num_choices)
        scored: Scored = self.model(batch.sentences, is_real, encoding.without_detection.of(rows))
        scores = scored.scores.view(-1, num_choices)
        over_clips = mean_over_clips(batch.clip_of_question)
        losses = {"choices": over_clips(margin_loss(scores, batch.answers, margin=self.margin))}
        losses |= attention_losses(
            self.attention_weight, input=(scored.input_weights, is_real), mean=mean_over_clips(rows)
        )
        return losses | detector_losses(self.concept_weight, encoding, batch.reference)

    @torch.inference_mode()
    def evaluate(self) -> Mapping[str, float]:
        """Accuracy, and the detector's precision."""
        self.model.eval()
        encoding = self.clips.encoded(self.model.clip_encoder)
        metrics = accuracy(self.answered(self._scores(encoding).tolist()))
        return metrics | self.clips.judge_concepts(self.model.clip_encoder, encoding)

    @torch.inference_mode()
    def calibrate(self) -> None:
        """Set the scale of the scores."""
        self.model.eval()
        scores = self._scores(self.clips.encoded(self.model.clip_encoder))
        if len(scores):
            self.model.calibrate_scale(scores)

    @torch.inference_mode()
    def measure(self, encoding: ClipEncoding | None = None) -> Measured:
        encoding = self.clips.encoded(self.model.clip_encoder) if encoding is None else encoding
        answered = self.answered(self._scores(encoding).tolist())
        return Measured(accuracy(answered) | self.clips.precision(encoding), answers_by_clip(answered))

    @torch.inference_mode()
    def examples(self) -> list[Example]:
        """One question per validation clip, with all its choices. The score is 1 if the answer is correct."""
        self.model.eval()
        encoding = self.clips.encoded(self.model.clip_encoder)
        return self.clips.examples(encoding, self.answered(self._scores(encoding).tolist()))

    def _scores(self, encoding: ClipEncoding) -> Tensor:
        """Scores of the choices of all validation questions, question by question."""
        rows_of_clips = {clip.id: row for row, clip in enumerate(self.clips.validation)}
        pairs = [(sentence, rows_of_clips[item.clip]) for item in self.items for sentence in item.choices]
        device = encoding.concepts.device
        scores = [torch.zeros(0)]
        for start in range(0, len(pairs), _SENTENCES_AT_ONCE):
            sentences, rows = zip(*pairs[start : start + _SENTENCES_AT_ONCE], strict=True)
            words = self._encoded(sentences).to(device)
            scored: Scored = self.model(words, words != PAD, encoding.of(torch.tensor(rows, device=device)))
            scores.append(scored.scores.cpu())
        return torch.cat(scores)

    def answered(self, scores: Sequence[float]) -> list[AnsweredItem]:
        """The validation questions with the choices of highest score, in order.

        Args:
            scores: of all choices, question by question.
        """
        answered = []
        remaining = iter(scores)
        for item in self.items:
            choice_scores = [next(remaining) for _ in item.choices]
            choice = choice_scores.index(max(choice_scores))
            answered.append(
                AnsweredItem(
                    clip=item.clip,
                    answer=item.choices[choice],
                    right=item.choices[item.answer],
                    score=float(choice == item.answer),
                    output={"choice": choice, "right": item.answer, "scores": choice_scores},
                    choices=tuple(
                        ShownChoice(sentence, is_right=place == item.answer, is_chosen=place == choice)
                        for place, sentence in enumerate(item.choices)
                    ),
                )
            )
        return answered

    def _encoded(self, sentences: Sequence[str]) -> Tensor:
        vocabulary = self.clips.words.vocabulary
        return torch.from_numpy(encode_sentences(sentences, vocabulary, max_words=self.max_words))


def _build_model(inputs: ModelInputs) -> ChoiceModel:
    contrastive = inputs.settings.attention.contrastive_init
    return ChoiceModel(**language_model_arguments(inputs), contrastive_init=contrastive)


def _build_task(inputs: TaskInputs) -> ChoiceTask:
    settings, corpus = inputs.settings, inputs.corpus
    return ChoiceTask(
        **inputs.shared_arguments,
        max_words=settings.decoding.max_words,
        train=inputs.items(ChoiceItem, "choose", "train") if corpus.split("train") else [],
        validation=inputs.items(ChoiceItem, "choose", inputs.split, per_clip=ITEMS_PER_CLIP),
        questions_per_clip=max(1, settings.training.captions_per_clip // _SENTENCES_PER_QUESTION),
        margin=settings.loss.choice_margin,
    )


SPEC = TaskSpec(
    name="choose",
    help="Learn to choose the sentence that was written for a clip.",
    primary_metric=ChoiceTask.primary_metric,
    build_model=_build_model,
    build_task=_build_task,
    report=lambda inputs: AnswerReport(item_statistics("choose", inputs.answers)),
    items=(("choose", "train"), ("choose", "val")),
    answer_noun="choices",
    split_answers=lambda answers: [answer["choice"] for answer in answers],
)
