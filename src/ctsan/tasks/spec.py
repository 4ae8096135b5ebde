"""The interface of a task to the other packages: one `TaskSpec` each, in the dict `TASKS` of `registry`."""

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
from ctsan.tasks.task import Measured, Task
from ctsan.text.words import Words

ItemT = TypeVar("ItemT", BlankItem, ChoiceItem, QueryItem)
Answers = Mapping[str, Any]  # by clip id, as in `Measured`

ITEMS_PER_CLIP = 5  # built for each evaluated clip if the corpus has no items
_ITEM_SEED = 0  # all runs are evaluated on the same items


class ModelInputs(NamedTuple):
    """Inputs for building a model."""

    settings: Settings
    words: Words
    grid: tuple[int, int]
    channels: int


class TaskInputs(NamedTuple):
    """Inputs for building a training task."""

    settings: Settings
    model: Any
    clips: TaskClips
    corpus: Corpus
    split: Split  # for evaluation

    @property
    def shared_arguments(self) -> dict[str, Any]:
        """Arguments of every task whose model may have a detector: model, clips and the weights λ."""
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
        """The corpus' own items of a split, or items built from its captions if there are none."""
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
    """Metrics of a task's answers.

    Attributes:
        statistics: metrics that are sums over clips.
        metrics: all other metrics.
        tokeniser, notes: for captions. Notes list differences from the official metrics.
    """

    statistics: dict[str, ClipStatistic]
    metrics: dict[str, float] = {}  # noqa: RUF012  # of a NamedTuple, and never changed
    tokeniser: Tokeniser | None = None
    notes: tuple[str, ...] = ()


class ReportInputs(NamedTuple):
    answers: Answers
    clips: Sequence[Clip]  # the evaluated clips
    java: Path | None  # the result of `find_java`; only captions need it
    training: Iterable[str] = ()  # captions of the training clips


Compare = Callable[
    [Mapping[str, Answers], Sequence[Clip], Path | None], Mapping[str, Mapping[str, ClipStatistic]]
]


def _no_answers(answer: Any) -> Sequence[object]:
    return list(answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """One task. `ROLES` of `roles` says which other tasks its runs help.

    Attributes:
        help: one line, for `ctsan train`.
        primary_metric: the metric to maximise.
        build_model: builds a new model. The caller seeds the random number generator.
        build_task: builds the training task.
        report: computes the metrics of answers, including those that training does not need.
        defaults: settings that the task overrides in every profile, in the format of `overridden`.
        items: kind of items for training and model selection, if the corpus has any.
        measure_ensemble: measures several models of the task as one, on the clips of a task; without it, one
            model is measured at a time. ctsan's own tasks are asked through `inference` instead.
        needs_java: the report has the official metrics only with Java.
        answer_noun: plural noun for its answers.
        split_answers: splits the answers about one clip, for comparison one by one.
        compare: statistics of several systems' answers to the same clips, from the answers by system, the
            clips and Java. It may leave out slow metrics. Without it, `report` is called for each system.
        replaces_decoder: its model may have another decoder than the paper's, by `model.decoder`.
    """

    name: str
    help: str
    primary_metric: str
    build_model: Callable[[ModelInputs], nn.Module]
    build_task: Callable[[TaskInputs], Task[Any]]
    report: Callable[[ReportInputs], AnswerReport]
    defaults: tuple[str, ...] = ()
    items: tuple[tuple[ItemTask, Split], ...] = ()
    measure_ensemble: Callable[[Any, Sequence[Any]], Measured] | None = None
    needs_java: bool = False
    answer_noun: str = "answers"
    split_answers: Callable[[Any], Sequence[object]] = field(default=_no_answers)
    compare: Compare | None = None
    replaces_decoder: bool = False

    def __repr__(self) -> str:
        return f"TaskSpec({self.name!r}, {self.primary_metric})"
