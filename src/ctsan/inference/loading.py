"""Load the models of trained runs, with ONNX Runtime wherever there are graphs for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ctsan.inference.loaded_model import LoadedModel
from ctsan.inference.onnx_model import (
    OnnxBlankFiller,
    OnnxCaptioner,
    OnnxJointEmbedding,
    OnnxRetrieval,
    OnnxScorer,
)
from ctsan.inference.onnx_weights import has_graphs
from ctsan.io.extras import extra
from ctsan.runs.trained_run import TrainedRun, load_runs

_KINDS: dict[str, Callable[[TrainedRun], LoadedModel]] = {
    "describe": OnnxCaptioner,
    "fill": OnnxBlankFiller,
    "choose": OnnxScorer,
    "rank": OnnxRetrieval,
    "embed": OnnxJointEmbedding,
}


def load_model(run: TrainedRun) -> LoadedModel:
    """The model of a run. The paper's baselines, and tasks that were added, run with PyTorch.

    Raises:
        UsageError: it needs PyTorch, which is not installed.
    """
    if has_graphs(run.task, run.settings):
        return _KINDS[run.task](run)
    with extra("train", f"The model of {run.folder}, which runs with PyTorch,"):
        from ctsan.inference.torch_model import load_torch_model
    return load_torch_model(run)


def load_models(folders: Sequence[Path]) -> list[LoadedModel]:
    """The models of all runs in some folders; each may hold one run, an ensemble or a pack.

    Raises:
        RunError: a folder holds no usable run.
        UsageError: a model needs PyTorch, which is not installed.
    """
    return [load_model(run) for run in load_runs(folders)]
