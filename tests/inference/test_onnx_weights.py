"""Damaged runs are refused without PyTorch as they are with it: with their place and what is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ctsan.errors import RunError, WordsError
from ctsan.inference.loading import load_models
from ctsan.inference.onnx_model import OnnxModel
from ctsan.inference.onnx_weights import check_fit
from ctsan.runs.pack_folder import DEFAULT
from ctsan.runs.run_folder import SETTINGS_FILE
from ctsan.runs.trained_run import FEATURES_FILE, load_runs
from ctsan.runs.weights import WEIGHTS_FILE
from ctsan.tasks.registry import TASKS
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore
from runs.stored_runs import change_json, change_tensors, store_run
from runs.test_damaged_runs import TENSORS


@pytest.fixture(scope="module")
def whole(words: Words, store: FeatureStore, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("whole")
    return {task: store_run(folder / task, task, words, store) for task in TASKS}


@pytest.fixture
def copied(whole: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: shutil.copytree(whole[name], tmp_path / name)


@pytest.mark.parametrize("task", TASKS)
def test_whole_runs_fit(task: str, whole: dict[str, Path]) -> None:
    [model] = load_models([whole[task]])
    assert isinstance(model, OnnxModel)
    model.load()


def test_the_packaged_models_fit() -> None:
    for run in load_runs([Path(DEFAULT)]):
        check_fit(run)


@pytest.mark.parametrize(("task", "change"), [each[:2] for each in TENSORS.values()], ids=TENSORS)
def test_damaged_tensors_are_named(
    task: str, change: Callable[[dict[str, Any]], Any], copied: Callable[[str], Path]
) -> None:
    run = copied(task)
    change_tensors(run / WEIGHTS_FILE, change)
    [model] = load_models([run])
    with pytest.raises((RunError, WordsError)) as caught:
        model.load()
    assert str(run) in str(caught.value)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    ("file", "place", "value"),
    [
        (SETTINGS_FILE, ("settings", "model", "hidden_dim"), 16_384),
        (SETTINGS_FILE, ("settings", "detector", "attention_dim"), 16_384),
        (SETTINGS_FILE, ("settings", "model", "num_layers"), 7),
        (SETTINGS_FILE, ("settings", "detector", "enabled"), False),
        (SETTINGS_FILE, ("settings", "detector", "tie_traces"), False),
        (SETTINGS_FILE, ("task",), "fill"),
        (FEATURES_FILE, ("channels",), 7),
    ],
)
def test_settings_of_another_model_are_refused(
    file: str, place: tuple[str, ...], value: object, copied: Callable[[str], Path]
) -> None:
    run = copied("describe")
    change_json(run / file, place, value)
    [model] = load_models([run])
    with pytest.raises(RunError, match="do not fit the model") as caught:
        model.load()
    assert str(run) in str(caught.value)
