"""What the training loop knows of a task, and all that it knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from torch import Tensor, nn

BatchT = TypeVar("BatchT")


class Task(Protocol, Generic[BatchT]):
    """A model, the examples it learns from, and how well it does on examples it has not seen.

    A task is told which examples to take and never draws at random which ones: the loop can then stop at any
    step and go on from there, on one process or on several.
    """

    @property
    def model(self) -> nn.Module: ...

    @property
    def num_examples(self) -> int:
        """Training examples; they are numbered from 0."""
        ...

    @property
    def primary_metric(self) -> str:
        """The entry of `evaluate` that is maximised; the best checkpoint and early stopping go by it."""
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
        """Metrics on validation, with the model in evaluation mode."""
        ...
