"""What the training loop knows of a task, and all that it knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from torch import Tensor, nn

if TYPE_CHECKING:
    from ctsan.model.clip_encoder import ClipEncoding
    from ctsan.tasks.clips import TaskClips
    from ctsan.tasks.loaded_model import LoadedModel

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
    """A clip that was found for a sentence."""

    rank: int  # from 1
    clip: str
    path: Path
    is_right: bool


@dataclass(frozen=True, slots=True)
class Example:
    """What a model says of a clip it has not seen, beside what people said.

    Attributes:
        choices: of a multiple-choice question.
        ranked: the first five clips for the sentence `caption`; where the right one is not among them, the
            first four and the right one.
        num_ranked: how many clips were ranked.
    """

    clip: str
    path: Path
    caption: str
    references: tuple[str, ...]
    concepts: tuple[ShownConcept, ...]  # in order of rank
    score: float  # the clip's own primary metric; 1 where an answer is right
    choices: tuple[ShownChoice, ...] = ()
    ranked: tuple[ShownClip, ...] = ()
    num_ranked: int = 0


class Measured(NamedTuple):
    """How well models did that answered as one."""

    metrics: dict[str, float]
    answers: dict[str, object]  # by clip, as they are printed; none where there was nothing to ask


class Task(Protocol, Generic[BatchT]):
    """A model, the examples it learns from, and how well it does on examples it has not seen.

    A task is told which examples to take and never draws at random which ones: the loop can then stop at any
    step and go on from there, on one process or on several.
    """

    @property
    def model(self) -> nn.Module: ...

    @property
    def clips(self) -> TaskClips: ...

    @property
    def buckets(self) -> Sequence[int]:
        """Of each training example, numbered from 0: a batch holds one kind, such as fit beside each other.

        In examples of kind 0 all weights count. A picture, for one, has no second frame to attend to.
        """
        ...

    @property
    def primary_metric(self) -> str:
        """The entry of `evaluate` that is maximised; the best checkpoint and early stopping go by it.

        Where there is nothing to measure it by, it is missing.
        """
        ...

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> BatchT:
        """These training examples as tensors on the processor, each with its frames mirrored if so said."""
        ...

    def losses(self, batch: BatchT) -> dict[str, Tensor]:
        """Named terms, already weighted, each a mean over the batch's examples; their sum is minimised."""
        ...

    def num_words(self, batch: BatchT) -> int:
        """How many words the batch holds, for the rate that people see."""
        ...

    def evaluate(self) -> Mapping[str, float]:
        """Metrics on validation, with the model in evaluation mode. It changes no weights and no buffers."""
        ...

    def calibrate(self) -> None:
        """Set what the model keeps of its scores on validation, such as their scale, before it is saved."""
        ...

    def measure(
        self, members: Sequence[LoadedModel[Any]], encodings: Sequence[ClipEncoding] | None = None
    ) -> Measured:
        """The same of trained models that answer as one, be the task's own among them or not.

        Args:
            encodings: of the validation clips by each member, in place of `clips.encoded(members)`.
        """
        ...

    def examples(self) -> list[Example]:
        """Every validation clip, to be looked at."""
        ...
