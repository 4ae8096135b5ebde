"""The full evaluation of trained models: official metrics, concept words, and confidence intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ctsan.data.corpus import Clip
from ctsan.evaluation.bootstrap import Interval, interval
from ctsan.evaluation.clip_statistics import ClipStatistic
from ctsan.evaluation.coco_metrics import Tokeniser
from ctsan.tasks.concepts import measure_concepts
from ctsan.tasks.loaded_model import LoadedModel
from ctsan.tasks.registry import task_spec
from ctsan.tasks.spec import ReportInputs
from ctsan.tasks.task import Measured
from ctsan.video.store import FeatureStore


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
    members: Sequence[LoadedModel[Any]],
    clips: Sequence[Clip],
    store: FeatureStore,
    *,
    java: Path | None,
    training: Iterable[str] = (),
) -> Report:
    """Extend the result of `Task.measure` by the metrics that training does not need.

    Args:
        clips: the evaluated clips.
        java: the result of `find_java`; only captions need it.
        training: captions of the training clips.
    """
    found = task_spec(task).report(ReportInputs(measured.answers, clips, java, training))
    concepts = measure_concepts(members, clips, store)
    metrics = {name: statistic.value for name, statistic in found.statistics.items()} | found.metrics
    metrics |= {name: statistic.value for name, statistic in concepts.items()}
    metrics |= {name: value for name, value in measured.metrics.items() if name not in metrics}
    return Report(metrics, found.statistics | concepts, found.tokeniser, found.notes)
