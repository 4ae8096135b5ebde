"""Fill-in-the-blank: predict the missing word in a sentence about a clip (section 3.2)."""

from __future__ import annotations

import re
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
from ctsan.tasks.clips import AnsweredItem, TaskClips, accuracy, encode_batch, printed
from ctsan.tasks.loaded_model import LoadedModel
from ctsan.tasks.losses import attention_losses, detector_losses, mean_over_clips
from ctsan.tasks.spec import ITEMS_PER_CLIP, AnswerReport, ModelInputs, TaskInputs, TaskSpec
from ctsan.tasks.task import Example, Measured
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import BLANK, PAD, SPECIALS, UNK, Vocabulary

_BLANK = re.compile("_{2,}|<blank>", re.IGNORECASE)  # blanks are typed as underscores of any number
_QUESTIONS_AT_ONCE = 200


class Question(NamedTuple):
    """Word ids of a sentence, and the blank to fill. The sentence may have other blanks."""

    words: tuple[int, ...]
    place: int  # index of the blank
    answer: int  # UNK if it is not in the vocabulary; any prediction then counts as wrong


class AskedBlank(NamedTuple):
    sentence: str
    number: int  # index of the blank within the sentence, from 0


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
        self.items = clips.asked(validation)
        given: dict[str, list[Question]] = {}
        for item in train:
            given.setdefault(item.clip, []).append(question_of(item, self._vocabulary))
        self._examples = [
            (clip, questions[start : start + questions_per_clip])
            for clip in clips.learnt
            for questions in [given.get(clip.id, []) if train else list(self._questions(clip))]
            for start in range(0, len(questions), questions_per_clip)
        ]

    @property
    def buckets(self) -> list[int]:
        return [self.clips.bucket(example[0]) for example in self._examples]

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> BlankBatch:
        clips, questions = zip(*(self._examples[example] for example in examples), strict=True)
        maps, frame_is_real = self.clips.maps(clips, mirrored=mirrored)
        asked = [question for some in questions for question in some]
        counts = torch.tensor([len(some) for some in questions])
        return BlankBatch(
            maps=maps,
            frame_is_real=frame_is_real,
            reference=self.clips.reference(clips),
            concept_scores=self.clips.concept_scores(clips),
            frozen=self.clips.frozen(clips),
            sentences=pad_words([question.words for question in asked]),
            places=torch.tensor([question.place for question in asked]),
            answers=torch.tensor([question.answer for question in asked]),
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
        encodings = self.clips.encoded([self._loaded])
        metrics = accuracy(self._answered([self._loaded], encodings))
        return metrics | self.clips.judge_concepts(self._loaded, encodings[0])

    def calibrate(self) -> None:
        """Nothing to calibrate."""

    @torch.inference_mode()
    def measure(
        self, members: Sequence[LoadedModel[BlankModel]], encodings: Sequence[ClipEncoding] | None = None
    ) -> Measured:
        encodings = self.clips.encoded(members) if encodings is None else encodings
        answered = self._answered(members, encodings)
        return Measured(accuracy(answered) | self.clips.precision(members, encodings), printed(answered))

    @torch.inference_mode()
    def examples(self) -> list[Example]:
        """One question per validation clip, with its answer. The score is 1 if it is correct."""
        self.model.eval()
        encodings = self.clips.encoded([self._loaded])
        return self.clips.examples(encodings[0], self._answered([self._loaded], encodings))

    @property
    def _loaded(self) -> LoadedModel[BlankModel]:
        return LoadedModel(self.model, self.clips.words, self.clips.max_frames, self.max_words)

    def _answered(
        self, members: Sequence[LoadedModel[BlankModel]], encodings: Sequence[ClipEncoding]
    ) -> list[AnsweredItem]:
        """The most probable word for each validation question, in order."""
        places = {clip.id: place for place, clip in enumerate(self.clips.validation)}
        answered = []
        for start in range(0, len(self.items), _QUESTIONS_AT_ONCE):
            items = self.items[start : start + _QUESTIONS_AT_ONCE]
            rows = torch.tensor([places[item.clip] for item in items])
            own = [encoding.of(rows.to(encoding.concepts.device)) for encoding in encodings]
            filled = fill(members, [AskedBlank(item.sentence, 0) for item in items], own)
            for item, word in zip(items, filled.probabilities.argmax(dim=1).tolist(), strict=True):
                answer = filled.words[word]
                answered.append(
                    AnsweredItem(
                        clip=item.clip,
                        said=item.sentence.replace(BLANK_SIGN, f"[{answer}]"),
                        right=item.sentence.replace(BLANK_SIGN, f"[{item.answer}]"),
                        score=float(tokenize(item.answer) == [answer]),
                        printed={"sentence": item.sentence, "answer": answer, "right": item.answer},
                    )
                )
        return answered

    def _questions(self, clip: Clip) -> Iterable[Question]:
        candidates = frozenset(self.clips.words.concepts.words)
        for caption in clip.captions:
            tokens = tokenize(caption)[: self.max_words]
            numbers = self._vocabulary.encode(tokens)
            for place, token in enumerate(tokens):
                if token in candidates:
                    yield Question((*numbers[:place], BLANK, *numbers[place + 1 :]), place, numbers[place])


class FilledTogether(NamedTuple):
    """Ensemble predictions for blanks."""

    words: tuple[str, ...]  # union of the members' vocabularies
    probabilities: Tensor  # (M, words), mean over the members; 0 for special tokens
    members: list[Filled]


@torch.inference_mode()
def fill(
    members: Sequence[LoadedModel[BlankModel]], asked: Sequence[AskedBlank], encodings: Sequence[ClipEncoding]
) -> FilledTogether:
    """Predict words for blanks by an ensemble. Other blanks of the same sentence are not filled.

    Args:
        encodings: one per member, with one row per blank.
    """
    words = tuple(dict.fromkeys(word for member in members for word in member.words.vocabulary.words))
    columns = {word: column for column, word in enumerate(words)}
    probabilities = torch.zeros(len(asked), len(words))
    answers = []
    for member, encoding in zip(members, encodings, strict=True):
        vocabulary, device = member.words.vocabulary, encoding.concepts.device
        encoded = [encode_blanks(blank.sentence, vocabulary) for blank in asked]
        sentences = pad_words([numbers for numbers, _ in encoded]).to(device)
        places = torch.tensor([blanks[each.number] for (_, blanks), each in zip(encoded, asked, strict=True)])
        filled: Filled = member.model(sentences, sentences != PAD, places.to(device), encoding)
        filled.scores[:, : len(SPECIALS)] = -torch.inf
        own = torch.tensor([columns[word] for word in vocabulary.words])
        probabilities[:, own] += filled.scores.softmax(dim=1).cpu() / len(members)
        answers.append(filled)
    return FilledTogether(words, probabilities, answers)


def question_of(item: BlankItem, vocabulary: Vocabulary) -> Question:
    words, places = encode_blanks(item.sentence, vocabulary)
    answer = vocabulary.encode(tokenize(item.answer))
    return Question(words, places[0], answer[0] if len(answer) == 1 else UNK)


def split_at_blanks(sentence: str) -> list[str]:
    """Split a sentence at its blanks; one part if it has none."""
    return _BLANK.split(sentence)


def encode_blanks(sentence: str, vocabulary: Vocabulary) -> tuple[tuple[int, ...], list[int]]:
    """Word ids of a sentence, and the indices of its blanks."""
    first, *others = (vocabulary.encode(tokenize(part)) for part in split_at_blanks(sentence))
    words, places = list(first), []
    for part in others:
        places.append(len(words))
        words += [BLANK, *part]
    return tuple(words), places


def _build_model(inputs: ModelInputs) -> BlankModel:
    settings = inputs.settings
    return BlankModel(
        **language_model_arguments(inputs),
        **output_arguments(settings),
        bidirectional=settings.model.bidirectional,
    )


def _build_task(inputs: TaskInputs) -> BlankTask:
    settings = inputs.settings
    given = inputs.corpus.items.get(("fill", "train"), ())
    return BlankTask(
        **inputs.joint_loss,
        max_words=settings.decoding.max_words,
        train=[item for item in given if isinstance(item, BlankItem)],
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
