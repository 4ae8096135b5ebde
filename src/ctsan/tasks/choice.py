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
from ctsan.tasks.clips import AnsweredItem, TaskClips, accuracy, encode_batch, printed
from ctsan.tasks.loaded_model import LoadedModel
from ctsan.tasks.losses import attention_losses, detector_losses, mean_over_clips
from ctsan.tasks.scoring import encode_sentences, ensemble_scores, score_each
from ctsan.tasks.spec import ITEMS_PER_CLIP, AnswerReport, ModelInputs, TaskInputs, TaskSpec
from ctsan.tasks.task import Example, Measured, ShownChoice
from ctsan.text.vocabulary import PAD

_SENTENCES_AT_ONCE = 500


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


_SENTENCES_PER_QUESTION = 5


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
        self.items = clips.asked(validation)
        asked: dict[str, list[ChoiceItem]] = {}
        for item in train:
            asked.setdefault(item.clip, []).append(item)
        self._examples = [
            (clip, items[start : start + questions_per_clip])
            for clip in clips.learnt
            for items in [asked.get(clip.id, [])]
            for start in range(0, len(items), questions_per_clip)
        ]

    @property
    def buckets(self) -> list[int]:
        return [self.clips.bucket(example[0]) for example in self._examples]

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> ChoiceBatch:
        clips, questions = zip(*(self._examples[example] for example in examples), strict=True)
        maps, frame_is_real = self.clips.maps(clips, mirrored=mirrored)
        items = [item for some in questions for item in some]
        counts = torch.tensor([len(some) for some in questions])
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
        [encoding] = self.clips.encoded([self._loaded])
        scores = self._scores(self._loaded, encoding)
        return accuracy(self._answered(scores)) | self.clips.judge_concepts(self._loaded, encoding)

    @torch.inference_mode()
    def calibrate(self) -> None:
        """Set the scale of the scores."""
        self.model.eval()
        [encoding] = self.clips.encoded([self._loaded])
        scores = self._scores(self._loaded, encoding)
        if len(scores):
            self.model.calibrate_scale(scores)

    @torch.inference_mode()
    def measure(
        self, members: Sequence[LoadedModel[ChoiceModel]], encodings: Sequence[ClipEncoding] | None = None
    ) -> Measured:
        encodings = self.clips.encoded(members) if encodings is None else encodings
        scores = [self._scores(member, own) for member, own in zip(members, encodings, strict=True)]
        answered = self._answered(ensemble_scores(members, scores))
        return Measured(accuracy(answered) | self.clips.precision(members, encodings), printed(answered))

    @torch.inference_mode()
    def examples(self) -> list[Example]:
        """One question per validation clip, with all its choices. The score is 1 if the answer is correct."""
        self.model.eval()
        [encoding] = self.clips.encoded([self._loaded])
        return self.clips.examples(encoding, self._answered(self._scores(self._loaded, encoding)))

    @property
    def _loaded(self) -> LoadedModel[ChoiceModel]:
        return LoadedModel(self.model, self.clips.words, self.clips.max_frames, self.max_words)

    def _scores(self, member: LoadedModel[ChoiceModel], encoding: ClipEncoding) -> Tensor:
        """Scores of the choices of all validation questions, question by question."""
        places = {clip.id: place for place, clip in enumerate(self.clips.validation)}
        asked = [(sentence, places[item.clip]) for item in self.items for sentence in item.choices]
        scores = [torch.zeros(0)]
        for start in range(0, len(asked), _SENTENCES_AT_ONCE):
            sentences, rows = zip(*asked[start : start + _SENTENCES_AT_ONCE], strict=True)
            own = encoding.of(torch.tensor(rows, device=encoding.concepts.device))
            scores.append(score_each(member, sentences, own).scores.cpu())
        return torch.cat(scores)

    def _answered(self, scores: Tensor) -> list[AnsweredItem]:
        """The choice with the highest score for each validation question, in order."""
        answered = []
        by_item = torch.split(scores, [len(item.choices) for item in self.items])
        for item, own in zip(self.items, by_item, strict=True):
            choice = int(own.argmax())
            answered.append(
                AnsweredItem(
                    clip=item.clip,
                    said=item.choices[choice],
                    right=item.choices[item.answer],
                    score=float(choice == item.answer),
                    printed={"choice": choice, "right": item.answer, "scores": own.tolist()},
                    choices=tuple(
                        ShownChoice(sentence, is_right=place == item.answer, is_chosen=place == choice)
                        for place, sentence in enumerate(item.choices)
                    ),
                )
            )
        return answered

    def _encoded(self, sentences: Sequence[str]) -> Tensor:
        return encode_sentences(sentences, self.clips.words.vocabulary, max_words=self.max_words)


def _build_model(inputs: ModelInputs) -> ChoiceModel:
    contrastive = inputs.settings.attention.contrastive_init
    return ChoiceModel(**language_model_arguments(inputs), contrastive_init=contrastive)


def _build_task(inputs: TaskInputs) -> ChoiceTask:
    settings, corpus = inputs.settings, inputs.corpus
    return ChoiceTask(
        **inputs.joint_loss,
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
    helpers=("embed",),
    answer_noun="choices",
    split_answers=lambda answers: [answer["choice"] for answer in answers],
)
