"""Multiple choice: learn which of a few sentences was written for a clip (appendix A.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ctsan.data.batches import pad_words
from ctsan.data.corpus import ChoiceItem
from ctsan.model.choice_model import ChoiceModel, Scored, margin_loss
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.tasks.clips import ItemExample, TaskClips
from ctsan.tasks.losses import attention_losses, detector_losses
from ctsan.tasks.task import Example
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import PAD, UNK, Vocabulary


class ChoiceBatch(NamedTuple):
    """Clips and questions about them, each with as many choices; a clip is there once."""

    maps: Tensor  # (B, N, h, w, C)
    frame_is_real: Tensor  # (B, N)
    reference: Tensor  # (B, V): 1 where a concept candidate is in the clip's captions
    sentences: Tensor  # (Q choices, T), padded; the choices of a question follow each other
    answers: Tensor  # (Q,)
    clip_of_question: Tensor  # (Q,), places in the batch


class ChoiceTask:
    """An example is a clip with some of its questions, all of them with the same number of choices.

    Args:
        train: questions about the training clips.
        validation: questions about the validation clips.
        margin: Δ.
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
        known = {clip.id for clip in clips.validation}
        self.items = [item for item in validation if item.clip in known]
        asked: dict[str, list[ChoiceItem]] = {}
        for item in train:
            asked.setdefault(item.clip, []).append(item)
        self._examples = [
            (clip, items[start : start + questions_per_clip])
            for clip in clips.train
            for items in [asked.get(clip.id, [])]
            for start in range(0, len(items), questions_per_clip)
        ]

    @property
    def num_examples(self) -> int:
        return len(self._examples)

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> ChoiceBatch:
        clips, questions = zip(*(self._examples[example] for example in examples), strict=True)
        maps, frame_is_real = self.clips.maps(clips, mirrored=mirrored)
        items = [item for some in questions for item in some]
        counts = torch.tensor([len(some) for some in questions])
        return ChoiceBatch(
            maps=maps,
            frame_is_real=frame_is_real,
            reference=self.clips.reference(clips),
            sentences=self._encoded([sentence for item in items for sentence in item.choices]),
            answers=torch.tensor([item.answer for item in items]),
            clip_of_question=torch.arange(len(clips)).repeat_interleave(counts),
        )

    def num_words(self, batch: ChoiceBatch) -> int:
        return int((batch.sentences != PAD).sum())

    def losses(self, batch: ChoiceBatch) -> dict[str, Tensor]:
        """The terms of the paper's loss, each a mean over questions or clips."""
        encoding = self.model.clip_encoder(batch.maps, batch.frame_is_real, batch.reference)
        is_real = batch.sentences != PAD
        num_choices = len(batch.sentences) // len(batch.answers)
        rows = batch.clip_of_question.repeat_interleave(num_choices)
        scored: Scored = self.model(batch.sentences, is_real, encoding.of(rows))
        scores = scored.scores.view(-1, num_choices)
        losses = {"choices": margin_loss(scores, batch.answers, margin=self.margin).mean()}
        losses |= attention_losses(self.attention_weight, input=(scored.input_weights, is_real))
        return losses | detector_losses(self.concept_weight, encoding, batch.reference)

    @torch.inference_mode()
    def evaluate(self) -> Mapping[str, float]:
        """The share of questions answered rightly, and the detector's precision."""
        self.model.eval()
        chosen = self._choices()
        right = [item.answer == choice for item, choice in zip(self.items, chosen, strict=True)]
        metrics = {"accuracy": sum(right) / max(len(right), 1)}
        return metrics | self.clips.judge_concepts(self.model.clip_encoder)

    @torch.inference_mode()
    def examples(self) -> list[Example]:
        """One question for each validation clip: the sentence chosen and the right one, which scores one."""
        self.model.eval()
        chosen = self._choices()
        said = [
            ItemExample(item.clip, item.choices[choice], item.choices[item.answer], item.answer == choice)
            for item, choice in zip(self.items, chosen, strict=True)
        ]
        return self.clips.examples(self.model.clip_encoder, said)

    def _choices(self) -> list[int]:
        """The choice made for every validation question, in their order."""
        asked: dict[str, list[int]] = {}
        for number, item in enumerate(self.items):
            asked.setdefault(item.clip, []).append(number)
        chosen = [0] * len(self.items)
        for clips, encoding in self.clips.encoded(self.model.clip_encoder, self.clips.validation):
            for row, clip in enumerate(clips):
                for number in asked.get(clip.id, ()):
                    scores = score_sentences(
                        self.model, self._encoded(self.items[number].choices), encoding, row
                    )
                    chosen[number] = int(scores.argmax())
        return chosen

    def _encoded(self, sentences: Sequence[str]) -> Tensor:
        return encode_sentences(sentences, self.clips.words.vocabulary, max_words=self.max_words)


def score_sentences(model: ChoiceModel, sentences: Tensor, encoding: ClipEncoding, row: int) -> Tensor:
    """How well each sentence (M, T) suits the clip in a row of an encoding, (M,)."""
    sentences = sentences.to(model.clip_encoder.candidate_words.device)
    rows = torch.full((len(sentences),), row, device=sentences.device)
    scores: Tensor = model(sentences, sentences != PAD, encoding.of(rows)).scores
    return scores


def encode_sentences(sentences: Sequence[str], vocabulary: Vocabulary, *, max_words: int) -> Tensor:
    """Sentences in numbers, (M, T), padded; one without words is one unknown word."""
    numbers = [vocabulary.encode(tokenize(sentence)[:max_words]) or [UNK] for sentence in sentences]
    return pad_words(numbers)
