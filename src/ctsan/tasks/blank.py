"""Fill-in-the-blank: predict the missing word in a sentence about a clip (section 3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ctsan.data.batches import pad_words
from ctsan.data.corpus import BLANK as BLANK_SIGN
from ctsan.data.corpus import BlankItem, Clip
from ctsan.evaluation.items import item_statistics
from ctsan.model.blank_model import BlankModel, Filled
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.tasks.clip_encoders import language_model_arguments, output_arguments
from ctsan.tasks.clips import AnsweredItem, TaskClips, accuracy, answers_by_clip, encode_batch
from ctsan.tasks.losses import attention_losses, detector_losses, mean_over_clips
from ctsan.tasks.spec import ITEMS_PER_CLIP, AnswerReport, ModelInputs, TaskInputs, TaskSpec
from ctsan.tasks.task import Example, Measured
from ctsan.text.sentences import encode_blanks
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import BLANK, PAD, SPECIALS, UNK, Vocabulary

_QUESTIONS_AT_ONCE = 200


class Question(NamedTuple):
    """Word ids of a sentence, and the blank to fill. The sentence may have other blanks."""

    words: tuple[int, ...]
    place: int  # index of the blank
    answer: int  # UNK if it is not in the vocabulary; any prediction then counts as wrong


class BlankBatch(NamedTuple):
    """Clips and questions about them. Each clip occurs once."""

    maps: Tensor  # (B, N, h, w, C)
    frame_is_real: Tensor  # (B, N)
    reference: Tensor  # (B, V): 1 where a concept candidate is in the clip's captions
    concept_scores: Tensor  # (B, V), out of fold; (B, 0) if the detector's own scores are used
    sentences: Tensor  # (M, T), padded
    places: Tensor  # (M,), indices of the blanks
    answers: Tensor  # (M,)
    clip_of_sentence: Tensor  # (M,), indices into the batch
    frozen: ClipEncoding | None = None  # as in `CaptionBatch`


class BlankTask:
    """An example is a clip with some of its questions.

    Args:
        validation: questions about the validation clips.
        train: the corpus' questions about the training clips, if any. By default, every concept candidate in
            every training caption is blanked once.
    """

    primary_metric = "accuracy"

    def __init__(
        self,
        *,
        model: BlankModel,
        clips: TaskClips,
        validation: Sequence[BlankItem],
        train: Sequence[BlankItem] = (),
        attention_weight: float,
        concept_weight: float,
        label_smoothing: float,
        questions_per_clip: int,
        max_words: int,
    ) -> None:
        self.model = model
        self.clips = clips
        self.attention_weight = attention_weight
        self.concept_weight = concept_weight
        self.label_smoothing = label_smoothing
        self.max_words = max_words
        self._vocabulary = clips.words.vocabulary
        self.items = clips.validation_items(validation)
        questions_by_clip: dict[str, list[Question]] = {}
        for item in train:
            questions_by_clip.setdefault(item.clip, []).append(question_of(item, self._vocabulary))
        self._examples = [
            (clip, questions[start : start + questions_per_clip])
            for clip in clips.epoch_clips
            for questions in [questions_by_clip.get(clip.id, []) if train else list(self._questions(clip))]
            for start in range(0, len(questions), questions_per_clip)
        ]

    @property
    def buckets(self) -> list[int]:
        return [self.clips.bucket(example[0]) for example in self._examples]

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> BlankBatch:
        clips, questions = zip(*(self._examples[example] for example in examples), strict=True)
        maps, frame_is_real = self.clips.maps(clips, mirrored=mirrored)
        all_questions = [question for clip_questions in questions for question in clip_questions]
        counts = torch.tensor([len(clip_questions) for clip_questions in questions])
        return BlankBatch(
            maps=maps,
            frame_is_real=frame_is_real,
            reference=self.clips.reference(clips),
            concept_scores=self.clips.concept_scores(clips),
            frozen=self.clips.frozen(clips),
            sentences=pad_words([question.words for question in all_questions]),
            places=torch.tensor([question.place for question in all_questions]),
            answers=torch.tensor([question.answer for question in all_questions]),
            clip_of_sentence=torch.arange(len(clips)).repeat_interleave(counts),
        )

    def num_words(self, batch: BlankBatch) -> int:
        return len(batch.answers)

    def losses(self, batch: BlankBatch) -> dict[str, Tensor]:
        """Terms of the paper's loss, each a mean over clips of the mean over a clip's questions."""
        encoding = encode_batch(self.model.clip_encoder, batch)
        is_real = batch.sentences != PAD
        filled: Filled = self.model(
            batch.sentences, is_real, batch.places, encoding.without_detection.of(batch.clip_of_sentence)
        )
        over_clips = mean_over_clips(batch.clip_of_sentence)
        missed = F.cross_entropy(
            filled.scores, batch.answers, reduction="none", label_smoothing=self.label_smoothing
        )
        losses = {"blanks": over_clips(missed)}
        losses |= attention_losses(
            self.attention_weight,
            input=(filled.input_weights, is_real),
            output=(filled.output_weights, is_real[:, :1]),  # one step: the blank
            mean=over_clips,
        )
        return losses | detector_losses(self.concept_weight, encoding, batch.reference)

    @torch.inference_mode()
    def evaluate(self) -> Mapping[str, float]:
        """Top-1 accuracy on the blanks, and the detector's precision."""
        self.model.eval()
        encoding = self.clips.encoded(self.model.clip_encoder)
        metrics = accuracy(self.answered(self._words(encoding)))
        return metrics | self.clips.judge_concepts(self.model.clip_encoder, encoding)

    def calibrate(self) -> None:
        """Nothing to calibrate."""

    @torch.inference_mode()
    def measure(self, encoding: ClipEncoding | None = None) -> Measured:
        encoding = self.clips.encoded(self.model.clip_encoder) if encoding is None else encoding
        answered = self.answered(self._words(encoding))
        return Measured(accuracy(answered) | self.clips.precision(encoding), answers_by_clip(answered))

    @torch.inference_mode()
    def examples(self) -> list[Example]:
        """One question per validation clip, with its answer. The score is 1 if it is correct."""
        self.model.eval()
        encoding = self.clips.encoded(self.model.clip_encoder)
        return self.clips.examples(encoding, self.answered(self._words(encoding)))

    def answered(self, words: Sequence[str]) -> list[AnsweredItem]:
        """The validation questions with the words that fill their blanks, in order."""
        return [
            AnsweredItem(
                clip=item.clip,
                answer=item.sentence.replace(BLANK_SIGN, f"[{word}]"),
                right=item.sentence.replace(BLANK_SIGN, f"[{item.answer}]"),
                score=float(tokenize(item.answer) == [word]),
                output={"sentence": item.sentence, "answer": word, "right": item.answer},
            )
            for item, word in zip(self.items, words, strict=True)
        ]

    def _words(self, encoding: ClipEncoding) -> list[str]:
        """The most probable word for each validation question."""
        rows_of_clips = {clip.id: row for row, clip in enumerate(self.clips.validation)}
        device = encoding.concepts.device
        words: list[str] = []
        for start in range(0, len(self.items), _QUESTIONS_AT_ONCE):
            items = self.items[start : start + _QUESTIONS_AT_ONCE]
            questions = [encode_blanks(item.sentence, self._vocabulary) for item in items]
            sentences = pad_words([ids for ids, _ in questions]).to(device)
            places = torch.tensor([blanks[0] for _, blanks in questions], device=device)
            rows = torch.tensor([rows_of_clips[item.clip] for item in items], device=device)
            filled: Filled = self.model(sentences, sentences != PAD, places, encoding.of(rows))
            best = filled.scores[:, len(SPECIALS) :].argmax(dim=1) + len(SPECIALS)
            words += [self._vocabulary.words[word] for word in best.tolist()]
        return words

    def _questions(self, clip: Clip) -> Iterable[Question]:
        candidates = frozenset(self.clips.words.concepts.words)
        for caption in clip.captions:
            tokens = tokenize(caption)[: self.max_words]
            numbers = self._vocabulary.encode(tokens)
            for place, token in enumerate(tokens):
                if token in candidates:
                    yield Question((*numbers[:place], BLANK, *numbers[place + 1 :]), place, numbers[place])


def question_of(item: BlankItem, vocabulary: Vocabulary) -> Question:
    words, places = encode_blanks(item.sentence, vocabulary)
    answer = vocabulary.encode(tokenize(item.answer))
    return Question(words, places[0], answer[0] if len(answer) == 1 else UNK)


def _build_model(inputs: ModelInputs) -> BlankModel:
    settings = inputs.settings
    return BlankModel(
        **language_model_arguments(inputs),
        **output_arguments(settings),
        bidirectional=settings.model.bidirectional,
    )


def _build_task(inputs: TaskInputs) -> BlankTask:
    settings = inputs.settings
    train_items = inputs.corpus.items.get(("fill", "train"), ())
    return BlankTask(
        **inputs.shared_arguments,
        max_words=settings.decoding.max_words,
        train=[item for item in train_items if isinstance(item, BlankItem)],
        validation=inputs.items(BlankItem, "fill", inputs.split, per_clip=ITEMS_PER_CLIP),
        label_smoothing=settings.loss.label_smoothing,
        questions_per_clip=settings.training.captions_per_clip,
    )


SPEC = TaskSpec(
    name="fill",
    help="Learn to fill in the blank of a sentence about a clip.",
    primary_metric=BlankTask.primary_metric,
    build_model=_build_model,
    build_task=_build_task,
    report=lambda inputs: AnswerReport(item_statistics("fill", inputs.answers)),
    items=(("fill", "train"), ("fill", "val")),
    answer_noun="filled words",
    split_answers=lambda answers: [answer["answer"] for answer in answers],
)
