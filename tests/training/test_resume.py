"""Killed at any moment, a training goes on to the same weights and the same metrics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ctsan.config import load_settings
from ctsan.errors import RunError, UsageError
from ctsan.runs.checkpoint import CHECKPOINT_FILE, WEIGHTS_FILE, load_weights
from ctsan.training.loop import Result, train_loop
from ctsan.training.metrics import METRICS_FILE, read_metrics
from training.stand_in import StandIn

TESTS = Path(__file__).parents[1]
SHORT = (
    "training.epochs=3",
    "training.batch_size=4",
    "training.checkpoint_every=4",
    "training.report_every=3",
)


def run(folder: Path, *overrides: str, task: StandIn | None = None, **options: Any) -> Result:
    settings = load_settings("laptop", [*SHORT, *overrides])
    task = task or StandIn()
    return train_loop(task, folder, optimiser=settings.optimiser, training=settings.training, **options)


def outcome(folder: Path) -> list[object]:
    """Weights, checkpoint and metrics, but for what depends on the clock."""
    rows = read_metrics(folder / METRICS_FILE)
    for row in rows:
        row.pop("words_per_second", None)
        row.pop("seconds", None)
    with safe_open(folder / CHECKPOINT_FILE, framework="numpy") as checkpoint:
        tensors = {name: checkpoint.get_tensor(name).tobytes() for name in sorted(checkpoint.keys())}
        header = json.loads(checkpoint.metadata()["ctsan"])
    assert header["state"].pop("metrics_size") == (folder / METRICS_FILE).stat().st_size
    return [(folder / WEIGHTS_FILE).read_bytes(), tensors, header, rows]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.slow
def test_killed_and_resumed_gives_the_same_bytes_as_undisturbed(tmp_path: Path) -> None:
    settings = ["training.epochs=20", *SHORT[1:], "training.patience=20", "training.evaluate_every=2"]
    command = [sys.executable, "-m", "training.run_stand_in", str(tmp_path), *settings, "kills=1"]
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= 3
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "undisturbed")


class StoppedError(Exception):
    pass


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run(folder)
    return folder


@pytest.mark.parametrize("step", range(1, 18))
def test_stopped_at_any_step_it_goes_on_to_the_same_outcome(
    tmp_path: Path, undisturbed: Path, step: int
) -> None:
    class Stopping(StandIn):
        def num_words(self, batch: Any) -> int:
            if len(self.learnt) == step:
                raise StoppedError
            self.learnt.append(step)
            return super().num_words(batch)

        learnt: list[int] = []  # noqa: RUF012  # one for each class, and a class for each test

    with pytest.raises(StoppedError):
        run(tmp_path, task=Stopping())
    run(tmp_path)
    assert outcome(tmp_path) == outcome(undisturbed)


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    first = run(tmp_path)
    before = outcome(tmp_path)
    assert run(tmp_path) == first
    assert outcome(tmp_path) == before


def test_a_finished_run_can_be_trained_for_longer(tmp_path: Path) -> None:
    overrides = ("optimiser.schedule=constant", "training.patience=9")
    run(tmp_path / "twice", *overrides)
    result = run(tmp_path / "twice", *overrides, "training.epochs=5")
    assert (result.steps, result.stopped_early) == (30, False)
    run(tmp_path / "once", *overrides, "training.epochs=5")
    assert outcome(tmp_path / "twice") == outcome(tmp_path / "once")


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(UsageError) as caught:
        run(tmp_path, "training.seed=7", "optimiser.clip_norm=1", "training.epochs=9")
    assert str(caught.value) == (
        f"{tmp_path / CHECKPOINT_FILE}: this run was started with other settings: optimiser.clip_norm is 5.0 "
        "there and 1.0 now; training.seed is 0 there and 7 now. Give it the same ones (only training.epochs, "
        "training.steps and training.patience may be raised), or name another folder for a new run."
    )
    with pytest.raises(UsageError, match="training.epochs is 3 there and 2 now"):
        run(tmp_path, "training.epochs=2")


def test_another_corpus_or_model_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(RunError, match="made with 21 training examples, and there are 20. Train on the same"):
        run(tmp_path, task=StandIn(num_examples=20))
    other = StandIn()
    other.model.add_module("more", StandIn().model.inner)
    with pytest.raises(RunError, match=r"do not fit the model: Missing key.*more.weight"):
        run(tmp_path, task=other)


def test_files_of_older_runs_load_without_the_tensors_that_models_no_longer_have(
    tmp_path: Path, undisturbed: Path
) -> None:
    """Both the weights and the checkpoint: a run that was stopped goes on."""
    run(tmp_path, "training.patience=9")
    for name in (WEIGHTS_FILE, CHECKPOINT_FILE):
        with safe_open(tmp_path / name, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # it is no mapping
            metadata = file.metadata()
        prefix = "model/" if name == CHECKPOINT_FILE else ""
        tensors[f"{prefix}clip_encoder.word_noise"] = torch.tensor(0.5)
        save_file(tensors, tmp_path / name, metadata)
    model = StandIn().model
    load_weights(tmp_path / WEIGHTS_FILE, model)
    whole = StandIn().model
    load_weights(undisturbed / WEIGHTS_FILE, whole)
    assert torch.equal(model.inner.weight, whole.inner.weight)
    assert run(tmp_path, "training.patience=9", "training.epochs=4").steps == 24


def spoil(file: Path, how: str) -> None:
    whole = file.read_bytes()
    match how:
        case "cut":
            file.write_bytes(whole[: len(whole) // 2])
        case "empty":
            file.write_bytes(b"")
        case "foreign":
            file.write_bytes(whole.replace(b"ctsan-", b"other-"))
        case "newer":
            file.write_bytes(whole.replace(b'version\\": 1', b'version\\": 2'))
        case "header":
            file.write_bytes(whole.replace(b'format\\": ', b"format\\: \\"))


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("cut", "it is damaged"),
        ("empty", "it is damaged"),
        ("header", "it is damaged"),
        ("foreign", "its format is 'other-"),
        ("newer", "its version is 2, and this ctsan reads version 1"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, how: str, what: str) -> None:
    run(tmp_path)
    for name in (CHECKPOINT_FILE, WEIGHTS_FILE):
        spoil(tmp_path / name, how)
        with pytest.raises(RunError) as caught:
            load_weights(tmp_path / name, StandIn().model) if name == WEIGHTS_FILE else run(tmp_path)
        assert str(caught.value).startswith(f"{tmp_path / name}: {what}")


def test_weights_are_not_taken_from_a_checkpoint_or_from_nowhere(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(RunError, match="its format is 'ctsan-checkpoint', not 'ctsan-weights'"):
        load_weights(tmp_path / CHECKPOINT_FILE, StandIn().model)
    with pytest.raises(RunError, match="there is no such file. Train first"):
        load_weights(tmp_path / "none.safetensors", StandIn().model)


def test_lost_metrics_are_noticed(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / METRICS_FILE).write_text("", encoding="utf-8")
    with pytest.raises(RunError, match="it has 0 bytes, and had"):
        run(tmp_path)


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path) -> None:
    hold = (
        "import pathlib, sys; from ctsan.runs.run_folder import training_alone\n"
        "with training_alone(pathlib.Path(sys.argv[1])): print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", hold, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="another process is training in this folder"):
            run(tmp_path)
        other.kill()  # and the lock goes with it
    assert run(tmp_path).steps == 18
