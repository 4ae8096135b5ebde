"""A task registered outside of ctsan trains, resumes, is measured and is read again like any other.

Worst of ten trainings by `make margins` (five seeds, each with and without jitter of 1e-4), and the bound:

- loss left .510 (< .7)
"""

from __future__ import annotations

import json
import math
import runpy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import torch

import ctsan
from commands import ctsan_here
from ctsan.data.reading import read_corpus
from ctsan.errors import RunError, UsageError
from ctsan.runs.trained_run import load_runs
from ctsan.tasks.building import build_task
from ctsan.tasks.registry import TASKS
from ctsan.training.train import TrainResult
from ctsan.video.store import FeatureStore
from margins import Margins, Start

EXAMPLE = Path(__file__).parents[2] / "examples/order_task.py"
SMALL = (
    "model.hidden_dim=32",
    "model.embedding_dim=16",
    "training.batch_size=4",
    "model.dropout=0",
    "training.epochs=30",
    "training.patience=100",  # two validation clips say little
    "training.report_every=5",
)


@pytest.fixture(scope="module")
def example() -> Iterator[dict[str, Any]]:
    """What the example defines; its task is registered while the tests of this module run."""
    yield runpy.run_path(str(EXAMPLE))
    TASKS.pop("order", None)


@pytest.fixture(scope="module")
def features(shapes: Path, start: Start, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start.features(shapes / "features", tmp_path_factory.mktemp("jittered") / "features")


@pytest.fixture(scope="module")
def trained(
    shapes: Path,
    features: Path,
    example: dict[str, Any],
    start: Start,
    tmp_path_factory: pytest.TempPathFactory,
) -> TrainResult:
    [result] = ctsan.train(
        example["SPEC"].name,
        shapes / "corpus",
        tmp_path_factory.mktemp("order") / "run",
        features=[features],
        overrides=(*SMALL, f"training.seed={start.seed}"),
    )
    return result


def listed(answers: Mapping[str, object]) -> dict[str, list[dict[str, Any]]]:
    """The answers of this task: a list for each clip."""
    return cast("dict[str, list[dict[str, Any]]]", answers)


def test_the_loss_falls(trained: TrainResult, margins: Margins) -> None:
    rows = [json.loads(line) for line in (trained.run / "metrics.jsonl").read_text().splitlines()]
    losses = [row["losses"]["order"] for row in rows if "losses" in row]
    assert all(map(math.isfinite, losses))
    assert set(trained.metrics) == {"accuracy"}  # the metrics of the task, and no others
    margins.below("loss left", losses[-1] / losses[0], 0.7)


def test_every_test_clip_is_answered_and_the_weights_are_read_again(
    shapes: Path, features: Path, trained: TrainResult
) -> None:
    measured = ctsan.evaluate(trained.run, shapes / "corpus", features=[features])
    assert measured.task == "order"
    assert set(measured.answers) == {clip.id for clip in read_corpus(shapes / "corpus").split("test")}
    right = [answer["choice"] == answer["right"] for [answer] in listed(measured.answers).values()]
    assert measured.metrics == {"accuracy": pytest.approx(sum(right) / len(right))}
    val = ctsan.evaluate(trained.run, shapes / "corpus", features=[features], split="val")
    assert val.metrics["accuracy"] == pytest.approx(trained.metrics["accuracy"])  # of the best weights


def test_two_runs_answer_as_one(shapes: Path, features: Path, trained: TrainResult) -> None:
    alone, both = (
        listed(ctsan.evaluate(runs, shapes / "corpus", features=[features]).answers)
        for runs in (trained.run, [trained.run, trained.run])
    )
    for clip, [answer] in both.items():
        assert answer["scores"] == pytest.approx(alone[clip][0]["scores"])


def test_the_command_knows_the_task(
    shapes: Path, features: Path, trained: TrainResult, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("evaluate", trained.run, "--corpus", shapes / "corpus", "--features", features)
    ctsan_here(*options, "--task", "order", "--json")
    assert json.loads(capsys.readouterr().out)["metrics"].keys() == {"accuracy"}
    with pytest.raises(UsageError, match="Unknown task 'ordre'. Did you mean 'order'?"):
        ctsan_here(*options, "--task", "ordre")


def test_a_constant_score_is_never_right(shapes: Path, features: Path, trained: TrainResult) -> None:
    [run] = load_runs([trained.run])
    model, words = run.model, run.words
    with torch.no_grad():
        model.score.weight.zero_()
    corpus, store = read_corpus(shapes / "corpus"), FeatureStore(features)
    task = build_task("order", run.settings, words, store, corpus, model=model)
    assert task.evaluate() == {"accuracy": 0.0}


def test_the_settings_and_the_page_are_those_of_the_task(
    trained: TrainResult, example: dict[str, Any]
) -> None:
    settings = json.loads((trained.run / "settings.json").read_text())
    assert settings["task"] == "order"
    assert settings["settings"]["detector"]["enabled"] is False
    page = (trained.run / "examples.html").read_text()
    assert all(order in page for order in example["ORDERS"])


def test_a_run_of_an_unregistered_task_is_refused(
    trained: TrainResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(TASKS, "order")
    with pytest.raises(RunError, match="a run of 'order', which this ctsan does not know"):
        load_runs([trained.run])
