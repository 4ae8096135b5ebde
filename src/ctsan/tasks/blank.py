"""Fill-in-the-blank: learn the word that is missing in a sentence about a clip (section 3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ctsan.data.batches import pad_words
from ctsan.data.corpus import BLANK as BLANK_SIGN
from ctsan.data.corpus import BlankItem, Clip
from ctsan.model.blank_model import BlankModel, Filled
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.tasks.clips import ItemExample, TaskClips
from ctsan.tasks.losses import attention_losses, detector_losses
from ctsan.tasks.task import Example
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import BLANK, PAD, SPECIALS, UNK, Vocabulary


class Question(NamedTuple):
    """A sentence in numbers with one blank that is asked for; others may stay blank."""

    words: tuple[int, ...]
    place: int  # of the blank
    answer: int  # the unknown word where the vocabulary has none; then it is asked, and never right


class BlankBatch(NamedTuple):
    """Clips and questions about them; a clip is there once."""

    maps: Tensor  # (B, N, h, w, C)
    frame_is_real: Tensor  # (B, N)
    reference: Tensor  # (B, V): 1 where a concept candidate is in the clip's captions
    sentences: Tensor  # (M, T), padded
    places: Tensor  # (M,), of the blanks
    answers: Tensor  # (M,)
    clip_of_sentence: Tensor  # (M,), places in the batch


class BlankTask:
    """An example is a clip with some of its questions.

    Args:
        validation: questions about the validation clips.
        train: questions about the training clips where the corpus brings some; by default every concept
            candidate in every training caption is left out once.
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
        known = {clip.id for clip in clips.validation}
        self.items = [item for item in validation if item.clip in known]
        given: dict[str, list[Question]] = {}
        for item in train:
            given.setdefault(item.clip, []).append(question_of(item, self._vocabulary))
        self._examples = [
            (clip, questions[start : start + questions_per_clip])
            for clip in clips.train
            for questions in [given.get(clip.id, []) if train else list(self._questions(clip))]
            for start in range(0, len(questions), questions_per_clip)
        ]

    @property
    def num_examples(self) -> int:
        return len(self._examples)

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> BlankBatch:
        clips, questions = zip(*(self._examples[example] for example in examples), strict=True)
        maps, frame_is_real = self.clips.maps(clips, mirrored=mirrored)
        asked = [question for some in questions for question in some]
        counts = torch.tensor([len(some) for some in questions])
        return BlankBatch(
            maps=maps,
            frame_is_real=frame_is_real,
            reference=self.clips.reference(clips),
            sentences=pad_words([question.words for question in asked]),
            places=torch.tensor([question.place for question in asked]),
            answers=torch.tensor([question.answer for question in asked]),
            clip_of_sentence=torch.arange(len(clips)).repeat_interleave(counts),
        )

    def num_words(self, batch: BlankBatch) -> int:
        return len(batch.answers)

    def losses(self, batch: BlankBatch) -> dict[str, Tensor]:
        """The terms of the paper's loss, each a mean over questions or clips."""
        encoding = self.model.clip_encoder(batch.maps, batch.frame_is_real, batch.reference)
        is_real = batch.sentences != PAD
        filled: Filled = self.model(
            batch.sentences, is_real, batch.places, encoding.of(batch.clip_of_sentence)
        )
        losses = {
            "blanks": F.cross_entropy(filled.scores, batch.answers, label_smoothing=self.label_smoothing)
        }
        losses |= attention_losses(
            self.attention_weight,
            input=(filled.input_weights, is_real),
            output=(filled.output_weights, is_real[:, :1]),  # at the blank alone
        )
        return losses | detector_losses(self.concept_weight, encoding, batch.reference)

    @torch.inference_mode()
    def evaluate(self) -> Mapping[str, float]:
        """The share of blanks whose first answer is right, and the detector's precision."""
        self.model.eval()
        answers = self._answers()
        right = [item.answer == answer for item, answer in zip(self.items, answers, strict=True)]
        metrics = {"accuracy": sum(right) / max(len(right), 1)}
        return metrics | self.clips.judge_concepts(self.model.clip_encoder)

    @torch.inference_mode()
    def examples(self) -> list[Example]:
        """One question for each validation clip, with its answer; a right one scores one."""
        self.model.eval()
        answers = self._answers()
        said = [
            ItemExample(
                clip=item.clip,
                said=item.sentence.replace(BLANK_SIGN, f"[{answer}]"),
                right=item.sentence.replace(BLANK_SIGN, f"[{item.answer}]"),
                is_right=item.answer == answer,
            )
            for item, answer in zip(self.items, answers, strict=True)
        ]
        return self.clips.examples(self.model.clip_encoder, said)

    def _answers(self) -> list[str]:
        """The likeliest word for every validation question, in their order."""
        asked: dict[str, list[int]] = {}
        for number, item in enumerate(self.items):
            asked.setdefault(item.clip, []).append(number)
        answers = [""] * len(self.items)
        for clips, encoding in self.clips.encoded(self.model.clip_encoder, self.clips.validation):
            numbers = [number for clip in clips for number in asked.get(clip.id, ())]
            rows = [row for row, clip in enumerate(clips) for _ in asked.get(clip.id, ())]
            if numbers:
                questions = [question_of(self.items[number], self._vocabulary) for number in numbers]
                best = fill(self.model, questions, encoding.of(torch.tensor(rows))).argmax(dim=1)
                for number, word in zip(numbers, best.tolist(), strict=True):
                    answers[number] = self._vocabulary.words[word]
        return answers

    def _questions(self, clip: Clip) -> Iterable[Question]:
        candidates = frozenset(self.clips.words.concepts.words)
        for caption in clip.captions:
            tokens = tokenize(caption)[: self.max_words]
            numbers = self._vocabulary.encode(tokens)
            for place, token in enumerate(tokens):
                if token in candidates:
                    yield Question((*numbers[:place], BLANK, *numbers[place + 1 :]), place, numbers[place])


def fill(model: BlankModel, questions: Sequence[Question], encoding: ClipEncoding) -> Tensor:
    """Log-probabilities of all words for each question, (M, V); special tokens have none."""
    device = model.clip_encoder.candidate_words.device
    sentences = pad_words([question.words for question in questions]).to(device)
    places = torch.tensor([question.place for question in questions], device=device)
    scores: Tensor = model(sentences, sentences != PAD, places, encoding).scores
    scores[:, : len(SPECIALS)] = -torch.inf
    return scores.log_softmax(dim=1)


def question_of(item: BlankItem, vocabulary: Vocabulary) -> Question:
    words, [place] = encode_blanks(item.sentence, vocabulary)
    answer = vocabulary.encode(tokenize(item.answer))
    return Question(words, place, answer[0] if len(answer) == 1 else UNK)


def encode_blanks(sentence: str, vocabulary: Vocabulary) -> tuple[tuple[int, ...], list[int]]:
    """A sentence in numbers, and the places of its blanks."""
    first, *others = (vocabulary.encode(tokenize(part)) for part in sentence.split(BLANK_SIGN))
    words, places = list(first), []
    for part in others:
        places.append(len(words))
        words += [BLANK, *part]
    return tuple(words), places
