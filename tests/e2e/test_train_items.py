"""Blank, choice and retrieval are trained and measured by the same commands as description."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import ctsan
from e2e.small_run import SMALL


@pytest.mark.slow
@pytest.mark.parametrize(("task", "metric"), [("fill", "accuracy"), ("rank", "R@5")])
def test_a_run_is_trained_and_measured(shapes: Path, task: str, metric: str) -> None:
    run = shapes / task
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features", "--json")
    trained = json.loads(ctsan("train", task, *options, "--out", run, *SMALL).stdout)
    assert 0 <= trained[metric] <= 1
    assert "precision on train" in trained
    assert (run / "examples.html").exists()
    again = json.loads(ctsan("evaluate", run, *options, "--split", "val").stdout)
    assert again["task"] == task
    assert round(again["metrics"][metric], 4) == trained[metric]


@pytest.mark.slow
def test_nothing_is_learnt_that_no_question_could_choose_weights_by(shapes: Path) -> None:
    """Two clips cannot give five choices."""
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features")
    refused = ctsan("train", "choose", *options, "--out", shapes / "choose", *SMALL, exit_code=2).stderr
    assert "nothing to ask of the split 'val': of each of its clips, no caption has 4 of other" in refused
