"""The full evaluation of trained models: official metrics, concept words, and confidence intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ctsan.data.corpus import Clip
from ctsan.evaluation.bootstrap import Interval, interval
from ctsan.evaluation.clip_statistics import ClipStatistic
from ctsan.evaluation.coco_metrics import Tokeniser
from ctsan.tasks.registry import task_spec
from ctsan.tasks.spec import ReportInputs
from ctsan.tasks.task import Measured


class Report(NamedTuple):
    metrics: dict[str, float]
    statistics: dict[str, ClipStatistic]  # for metrics that are sums over clips
    tokeniser: Tokeniser | None  # for captions
    notes: tuple[str, ...]  # differences from the official metrics

    @property
    def intervals(self) -> dict[str, Interval]:
        return {name: interval(statistic) for name, statistic in self.statistics.items()}


def report(
    task: str,
    measured: Measured,
    concepts: Mapping[str, ClipStatistic],
    clips: Sequence[Clip],
    *,
    java: Path | None,
    training: Iterable[str] = (),
) -> Report:
    """Extend measured answers by the metrics that training does not need.

    Args:
        concepts: the result of `measure_concepts`, averaged over the models of an ensemble.
        clips: the evaluated clips.
        java: the result of `find_java`; only captions need it.
        training: captions of the training clips.
    """
    task_report = task_spec(task).report(ReportInputs(measured.answers, clips, java, training))
    metrics = {
        name: statistic.value for name, statistic in task_report.statistics.items()
    } | task_report.metrics
    metrics |= {name: statistic.value for name, statistic in concepts.items()}
    metrics |= {name: value for name, value in measured.metrics.items() if name not in metrics}
    return Report(metrics, task_report.statistics | dict(concepts), task_report.tokeniser, task_report.notes)
