"""The interface between a task and the training loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from torch import Tensor, nn

if TYPE_CHECKING:
    from ctsan.model.clip_encoder import ClipEncoding
    from ctsan.tasks.clips import TaskClips

BatchT = TypeVar("BatchT")


class ShownConcept(NamedTuple):
    word: str
    confidence: float
    is_right: bool  # it is in the clip's captions


class ShownChoice(NamedTuple):
    """A sentence of a multiple-choice question."""

    sentence: str
    is_right: bool
    is_chosen: bool


class ShownClip(NamedTuple):
    """A clip retrieved for a sentence."""

    rank: int  # from 1
    clip: str
    path: Path
    is_right: bool


@dataclass(frozen=True, slots=True)
class Example:
    """A model's answer for a validation clip, with the reference.

    Attributes:
        choices: for a multiple-choice question.
        ranked: the top five clips for the sentence `caption`, or the top four and the correct clip if it is
            not among the five.
        num_ranked: number of ranked clips.
    """

    clip: str
    path: Path
    caption: str
    references: tuple[str, ...]
    concepts: tuple[ShownConcept, ...]  # in order of rank
    score: float  # the primary metric of this clip; 1 for a correct answer
    choices: tuple[ShownChoice, ...] = ()
    ranked: tuple[ShownClip, ...] = ()
    num_ranked: int = 0


class Measured(NamedTuple):
    """Metrics and answers of a model, or of an ensemble."""

    metrics: dict[str, float]
    answers: dict[str, object]  # by clip id, as printed; empty if there was nothing to evaluate


class Task(Protocol, Generic[BatchT]):
    """A model, its training examples, and its evaluation on validation clips.

    The loop chooses the examples of a batch; a task never samples them itself. Training can therefore stop at
    any step and resume there, in one process or several.
    """

    @property
    def model(self) -> nn.Module: ...

    @property
    def clips(self) -> TaskClips: ...

    @property
    def buckets(self) -> Sequence[int]:
        """Bucket of each training example, from 0. A batch holds examples of one bucket only.

        Examples of bucket 0 give gradients to all weights. Those of other buckets may not: a picture, for
        example, has no second frame to attend to.
        """
        ...

    @property
    def primary_metric(self) -> str:
        """The entry of `evaluate` for choosing the best checkpoint and early stopping; higher is better.

        It is missing from `evaluate` if there is nothing to measure.
        """
        ...

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> BatchT:
        """Collate training examples into CPU tensors, with horizontally flipped frames where `mirrored`."""
        ...

    def losses(self, batch: BatchT) -> dict[str, Tensor]:
        """Named, weighted loss terms, each a mean over the batch. The loop minimises their sum."""
        ...

    def num_words(self, batch: BatchT) -> int:
        """Number of words in the batch, for the reported throughput."""
        ...

    def evaluate(self) -> Mapping[str, float]:
        """Validation metrics, with the model in evaluation mode. Changes no weights or buffers."""
        ...

    def calibrate(self) -> None:
        """Set buffers that depend on validation scores, such as their scale, before the model is saved."""
        ...

    def measure(self, encoding: ClipEncoding | None = None) -> Measured:
        """Evaluate the model, and return its answers.

        Args:
            encoding: of the validation clips; by default `clips.encoded(model.clip_encoder)`.
        """
        ...

    def examples(self) -> list[Example]:
        """Answers for the validation clips, for display."""
        ...
