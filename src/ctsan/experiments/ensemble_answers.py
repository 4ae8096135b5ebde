"""Evaluate an ensemble of trained models on the items of a task.

The answers are those of `inference`, so that what is measured is what the commands answer. The networks run
with PyTorch, which shares work between thousands of questions and agrees with ONNX Runtime to 1e-4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ctsan.errors import UsageError
from ctsan.evaluation.captions import caption_scores
from ctsan.inference.captioning import caption_clips
from ctsan.inference.ensemble import AskedBlank, fill_blanks, score_pairs, score_queries
from ctsan.inference.loaded_model import ClipEncoding, Floats, LoadedModel, concatenate
from ctsan.inference.torch_model import load_torch_model
from ctsan.runs.trained_run import TrainedRun
from ctsan.tasks.blank import BlankTask
from ctsan.tasks.choice import ChoiceTask
from ctsan.tasks.clips import TaskClips, accuracy, answers_by_clip
from ctsan.tasks.description import DescriptionTask
from ctsan.tasks.embedding import EmbeddingTask
from ctsan.tasks.registry import TASKS
from ctsan.tasks.retrieval import RetrievalTask
from ctsan.tasks.task import Measured, Task

_CLIPS_AT_ONCE = 32
_SENTENCES_AT_ONCE = 500


def measure_ensemble(task: Task[Any], runs: Sequence[TrainedRun]) -> Measured:
    """Metrics and answers of runs as an ensemble, on the validation clips of a task.

    A task that is not one of ctsan's is measured by its own `measure`, or by `TaskSpec.measure_ensemble`.

    Raises:
        UsageError: there are several runs of a task that cannot be measured as an ensemble.
    """
    measure = next((measure for kind, measure in _MEASURE.items() if isinstance(task, kind)), None)
    if measure is None and len(runs) == 1:
        return task.measure()
    if measure is None:
        custom = TASKS[runs[0].task].measure_ensemble
        if custom is None:
            raise UsageError(f"Runs of {runs[0].task!r} cannot answer as an ensemble. Name one of them.")
        return custom(task, [run.model for run in runs])
    models: Any = [load_torch_model(run) for run in runs]
    encodings = [encode_clips(model, task.clips) for model in models]
    measured = measure(task, models, encodings)
    return Measured(measured.metrics | _precision(task.clips, models, encodings), measured.answers)


def encode_clips(model: LoadedModel, clips: TaskClips) -> ClipEncoding:
    """The validation clips of a task, as a model encodes them."""
    validation = clips.validation
    batches = [
        validation[start : start + _CLIPS_AT_ONCE] for start in range(0, len(validation), _CLIPS_AT_ONCE)
    ]
    return concatenate([model.encode([clips.store[clip.id].maps for clip in batch]) for batch in batches])


def _precision(
    clips: TaskClips, models: Sequence[LoadedModel], encodings: Sequence[ClipEncoding]
) -> dict[str, float]:
    """Metrics of the concept words, averaged over the models that have some."""
    by_model = [
        metrics
        for model, encoding in zip(models, encodings, strict=True)
        if (metrics := clips.precision(encoding, model.concepts))
    ]
    return {
        name: sum(metrics[name] for metrics in by_model) / len(by_model)
        for name in (by_model[0] if by_model else ())
    }


def _caption(task: DescriptionTask, models: Any, encodings: Sequence[ClipEncoding]) -> Measured:
    rows = [row for row, clip in enumerate(task.clips.validation) if clip.id in task.references]
    captions = {}
    for start in range(0, len(rows), _CLIPS_AT_ONCE):
        batch = rows[start : start + _CLIPS_AT_ONCE]
        part = [encoding.of(batch) for encoding in encodings]
        for row, [best] in zip(batch, caption_clips(models, part, task.decoding, task.rerank), strict=True):
            captions[task.clips.validation[row].id] = best.text
    return Measured(caption_scores(task.references, captions), {**captions})


def _fill(task: BlankTask, models: Any, encodings: Sequence[ClipEncoding]) -> Measured:
    rows_of_clips = _rows(task.clips)
    words: list[str] = []
    for start in range(0, len(task.items), _SENTENCES_AT_ONCE):
        items = task.items[start : start + _SENTENCES_AT_ONCE]
        part = [encoding.of([rows_of_clips[item.clip] for item in items]) for encoding in encodings]
        filled = fill_blanks(models, [AskedBlank(item.sentence, 0) for item in items], part)
        words += [filled.words[word] for word in filled.probabilities.argmax(axis=1).tolist()]
    answered = task.answered(words)
    return Measured(accuracy(answered), answers_by_clip(answered))


def _choose(task: ChoiceTask, models: Any, encodings: Sequence[ClipEncoding]) -> Measured:
    rows_of_clips = _rows(task.clips)
    pairs = [(sentence, rows_of_clips[item.clip]) for item in task.items for sentence in item.choices]
    scores: list[Floats] = [np.zeros(0, np.float32)]
    for start in range(0, len(pairs), _SENTENCES_AT_ONCE):
        sentences, rows = zip(*pairs[start : start + _SENTENCES_AT_ONCE], strict=True)
        scores.append(score_pairs(models, [encoding.of(rows) for encoding in encodings], sentences))
    answered = task.answered(np.concatenate(scores).tolist())
    return Measured(accuracy(answered), answers_by_clip(answered))


def _rank(task: RetrievalTask | EmbeddingTask, models: Any, encodings: Sequence[ClipEncoding]) -> Measured:
    queries = task.queries
    ranked = [encoding.of(queries.rows) for encoding in encodings]
    scores = (
        torch.from_numpy(score_queries(models, ranked, queries.texts)) if queries.items else torch.zeros(0, 0)
    )
    return Measured(queries.metrics(scores), answers_by_clip(queries.answered(scores)))


def _rows(clips: TaskClips) -> dict[str, int]:
    return {clip.id: row for row, clip in enumerate(clips.validation)}


_MEASURE: Mapping[type, Callable[[Any, Any, Sequence[ClipEncoding]], Measured]] = {
    DescriptionTask: _caption,
    BlankTask: _fill,
    ChoiceTask: _choose,
    RetrievalTask: _rank,
    EmbeddingTask: _rank,
}
