"""Killed at any moment, a training goes on to the same weights and the same metrics."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ctsan.config import load_settings
from ctsan.errors import RunError, StorageError, UsageError
from ctsan.runs.checkpoint import load_weights
from ctsan.runs.run_folder import CHECKPOINT_FILE
from ctsan.runs.weights import WEIGHTS_FILE
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


def rewrite(
    file: Path,
    tensors: Callable[[dict[str, torch.Tensor]], object] | None = None,
    header: Callable[[dict[str, Any]], object] | None = None,
) -> None:
    """Rewrite a checkpoint with tensors or a header that are changed in place."""
    with safe_open(file, framework="pt") as opened:
        stored = {name: opened.get_tensor(name).clone() for name in opened.keys()}  # noqa: SIM118
        fields = json.loads(opened.metadata()["ctsan"])
    if tensors is not None:
        tensors(stored)
    if header is not None:
        header(fields)
    save_file(stored, file, metadata={"ctsan": json.dumps(fields)})


CHECKPOINTS: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {
    "no state": ("header", lambda h: h.pop("state"), "it has no 'state'"),
    "a state without a step": ("header", lambda h: h["state"].pop("step"), "it has no 'step'"),
    "a negative step": ("header", lambda h: h["state"].update(step=-1), "its 'step' is -1, not from 0 to"),
    "a step of text": ("header", lambda h: h["state"].update(step="9"), "its 'step' is '9', not a whole"),
    "a score of null": ("header", lambda h: h["state"].update(best_score=None), "its 'best_score' is not"),
    "a score that is no number": (
        "header",
        lambda h: h["state"].update(best_score=float("nan")),
        "its 'best_score' is not a number",
    ),
    "no settings": ("header", lambda h: h.pop("settings"), "it has no 'settings'"),
    "settings as a list": ("header", lambda h: h.update(settings=[1]), "its 'settings' is"),
    "a section as a number": (
        "header",
        lambda h: h["settings"].update(training=3),
        "not sections of settings",
    ),
    "examples of text": ("header", lambda h: h.update(num_examples="21"), "its 'num_examples' is '21'"),
    "a weight that is no number": (
        "tensors",
        lambda t: t["model/inner.bias"][:1].fill_(float("nan")),
        "infinite or no number",
    ),
    "a moment of another shape": (
        "tensors",
        lambda t: t.update({"optimiser/0/exp_avg": torch.zeros(3)}),
        "'optimiser/0/exp_avg' belongs to no weights",
    ),
    "a moment of no weights": (
        "tensors",
        lambda t: t.update({"optimiser/99/exp_avg": torch.zeros(3)}),
        "'optimiser/99/exp_avg' belongs to no weights",
    ),
    "a moment without a number": (
        "tensors",
        lambda t: t.update({"optimiser/x/exp_avg": torch.zeros(3)}),
        "'optimiser/x/exp_avg' belongs to no weights",
    ),
    "a moment is missing": (
        "tensors",
        lambda t: t.pop("optimiser/0/exp_avg"),
        "it lacks tensors of the optim",
    ),
    "an average is missing": (
        "tensors",
        lambda t: t.pop("average/inner.bias"),
        "averaged weights do not fit",
    ),
    "an average of another shape": (
        "tensors",
        lambda t: t.update({"average/inner.bias": torch.zeros(3)}),
        "its averaged weights do not fit the model: inner.bias",
    ),
}


@pytest.mark.parametrize(("part", "change", "said"), CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_damaged_checkpoint_is_named_with_its_fault(
    tmp_path: Path, undisturbed: Path, part: str, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    rewrite(tmp_path / CHECKPOINT_FILE, **{part: change})
    with pytest.raises(RunError) as caught:
        run(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / CHECKPOINT_FILE}: it is damaged (")
    assert said in str(caught.value)
    assert str(caught.value).endswith("Put it back from a copy, or name another folder for a new run.")


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("moment", [1, 2, 5, 9, 14])
def test_a_disk_that_fills_up_while_training_is_one_message_and_training_goes_on(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """Whichever file is written when it happens: the metrics, the weights or the checkpoint."""
    calls = iter(range(1, 1000))
    syncs = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: full() if next(calls) >= moment else syncs(file))
    with pytest.raises(StorageError, match=f"^{tmp_path}/.*: No space left on device. Free some space"):
        run(tmp_path)
    monkeypatch.undo()
    run(tmp_path)
    assert outcome(tmp_path) == outcome(undisturbed)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a limit of file sizes")
@pytest.mark.parametrize("limit", [10, 300, 1_500])
def test_a_limit_of_file_sizes_is_one_message(tmp_path: Path, limit: int) -> None:
    """A real error of the system, in the middle of a file."""
    program = (
        "import resource, sys; from pathlib import Path; from ctsan.errors import StorageError\n"
        "from training.test_resume import run\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "try:\n    run(Path(sys.argv[1]))\nexcept StorageError as error:\n    print(error)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.stderr == ""
    assert result.stdout.startswith(f"{tmp_path}/")
    assert result.stdout.endswith("File too large. Write to a file system that takes larger files.\n")
    assert not list(tmp_path.glob(".*.tmp"))
