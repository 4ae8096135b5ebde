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
    page = (run / "examples.html").read_text(encoding="utf-8")
    assert ('<ol class="ranked">' in page) == (task == "rank")
    assert "data:image/jpeg;base64," in page
    again = json.loads(ctsan("evaluate", run, *options, "--split", "val").stdout)
    assert again["task"] == task
    assert round(again["metrics"][metric], 4) == trained[metric]


@pytest.mark.slow
def test_without_questions_to_choose_weights_by_the_last_are_kept(shapes: Path) -> None:
    """Two clips cannot give five choices."""
    run = shapes / "choose"
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features")
    said = ctsan("train", "choose", *options, "--out", run, "--json", *SMALL)
    report = json.loads(said.stdout)
    assert report["best_step"] == report["steps"] > 1
    assert "accuracy" not in report
    assert "so the last weights are kept" in said.stderr
    refused = ctsan("evaluate", run, *options, "--split", "val", exit_code=2).stderr
    assert "nothing to ask of the split 'val'" in refused
