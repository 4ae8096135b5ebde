"""All that the rest of the house knows of a task: one `TaskSpec` each, in the dict `TASKS` of `registry`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from torch import nn

from ctsan.config import Settings
from ctsan.data.corpus import BlankItem, ChoiceItem, Clip, Corpus, ItemTask, QueryItem, Split
from ctsan.data.item_building import build_items
from ctsan.evaluation.clip_statistics import ClipStatistic
from ctsan.evaluation.coco_metrics import Tokeniser
from ctsan.tasks.clips import TaskClips
from ctsan.tasks.task import Task
from ctsan.text.words import Words

ItemT = TypeVar("ItemT", BlankItem, ChoiceItem, QueryItem)
Answers = Mapping[str, Any]  # by clip, as `Measured` has them

ITEMS_PER_CLIP = 5  # built of each clip that is measured, where the corpus brings none
_ITEM_SEED = 0  # all runs are measured on the same items


class ModelInputs(NamedTuple):
    """What a model is built from."""

    settings: Settings
    words: Words
    grid: tuple[int, int]
    channels: int


class TaskInputs(NamedTuple):
    """What a training task is built from."""

    settings: Settings
    model: Any
    clips: TaskClips
    corpus: Corpus
    split: Split  # that is measured on

    @property
    def joint_loss(self) -> dict[str, Any]:
        """Arguments of every task whose model has a detector."""
        loss = self.settings.loss
        return {
            "model": self.model,
            "clips": self.clips,
            "attention_weight": loss.attention_weight,
            "concept_weight": loss.concept_weight,
        }

    def items(
        self, kind: type[ItemT], task: ItemTask, split: Split, *, per_clip: int | None = None
    ) -> list[ItemT]:
        """The corpus' own items of a split, or items built from its captions, if any can be."""
        items = self.corpus.items.get((task, split), ())
        if not items:
            items = build_items(
                self.corpus,
                split=split,
                task=task,
                seed=_ITEM_SEED,
                vocabulary_words=self.clips.words.vocabulary.words,
                per_clip=per_clip,
            ).items
        return [item for item in items if isinstance(item, kind)]


class AnswerReport(NamedTuple):
    """What answers are worth.

    Attributes:
        statistics: the metrics that add up over clips.
        metrics: the others.
        tokeniser, notes: of captions; notes say what differs from official figures.
    """

    statistics: dict[str, ClipStatistic]
    metrics: dict[str, float] = {}  # noqa: RUF012  # of a NamedTuple, and never changed
    tokeniser: Tokeniser | None = None
    notes: tuple[str, ...] = ()


class ReportInputs(NamedTuple):
    answers: Answers
    clips: Sequence[Clip]  # that were measured
    java: Path | None  # what `find_java` found; only captions need it
    training: Iterable[str] = ()  # captions of the training clips


def _no_answers(answer: Any) -> Sequence[object]:
    return list(answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """One task.

    Attributes:
        help: one line, for `ctsan train`.
        primary_metric: that is maximised.
        build_model: a fresh model; random numbers are seeded by the caller.
        build_task: the training task.
        report: metrics of answers, with all that training does not need.
        defaults: settings that the task changes in every profile, as `overridden` takes them.
        items: that the task is trained and chosen by, where the corpus brings some.
        helpers: tasks whose runs may stand beside those of this one.
        decides: tasks whose questions its runs answer alone, in place of the tasks' own runs.
        needs_java: the report is the official one only with Java.
        answer_noun: what its answers are called, in the plural.
        split_answers: the answers about one clip, to be compared one by one.
    """

    name: str
    help: str
    primary_metric: str
    build_model: Callable[[ModelInputs], nn.Module]
    build_task: Callable[[TaskInputs], Task[Any]]
    report: Callable[[ReportInputs], AnswerReport]
    defaults: tuple[str, ...] = ()
    items: tuple[tuple[ItemTask, Split], ...] = ()
    helpers: tuple[str, ...] = ()
    decides: tuple[str, ...] = ()
    needs_java: bool = False
    answer_noun: str = "answers"
    split_answers: Callable[[Any], Sequence[object]] = field(default=_no_answers)

    def __repr__(self) -> str:
        return f"TaskSpec({self.name!r}, {self.primary_metric})"
