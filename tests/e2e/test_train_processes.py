"""`torchrun -m ctsan train`: two processes do what one does, and speak with one voice.

Worst of ten trainings by `make margins` (five seeds, each with and without jitter of 1e-4), and the bound:

- loss left .981 (< 1)
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from commands import ctsan
from ctsan.runs.run_folder import CHECKPOINT_FILE
from ctsan.runs.weights import WEIGHTS_FILE
from ctsan.training.metrics import METRICS_FILE, read_metrics
from e2e.small_run import SMALL
from margins import Margins, Start

TWO = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "ctsan"]
SETTINGS = [
    *SMALL,
    "--set=model.dropout=0",
    "--set=detector.dropout=0",
    "--set=loss.attention_weight=0.01",
    "--set=loss.concept_weight=1",
    # Rounding must not grow: no step is too long, and all candidates are chosen, so that no choice can tip.
    "--set=optimiser.learning_rate=2e-4",
    "--set=detector.num_candidates=4",
    "--set=training.batch_size=3",  # uneven shares, and at last one clip for the first process alone
    "--set=training.epochs=6",
    "--set=training.evaluate_every=6",
    "--set=training.report_every=1",
    "--set=training.checkpoint_every=2",
]
STEPS = 6 * 4  # ten clips in batches of three


@pytest.fixture(scope="module")
def command(shapes: Path, start: Start, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A training that still has to be told where its run is to be: `--out`."""
    features = start.features(shapes / "features", tmp_path_factory.mktemp("jittered") / "features")
    places = ("--corpus", shapes / "corpus", "--features", features)
    return ["train", "describe", *map(str, places), *SETTINGS, start.option, "--json", "--out"]


def rows(run: Path) -> list[dict[str, Any]]:
    """Without what depends on the clock."""
    found = read_metrics(run / METRICS_FILE)
    for row in found:
        row.pop("words_per_second", None)
        row.pop("seconds", None)
    return found


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    output = process.communicate(timeout=240)
    assert process.returncode == 0, output[1]
    return output


def launch(command: list[str], out: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*TWO, *command, str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


@pytest.fixture(scope="module")
def two(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("two") / "run"
    stdout, stderr = finish(launch(command, out))
    assert json.loads(stdout)["steps"] == STEPS  # one object: only the first process prints
    assert stderr.count("Preparing the words") == 1
    assert "Warning" not in stderr
    return out


@pytest.mark.slow
def test_two_processes_have_the_loss_curve_of_one(
    command: list[str], two: Path, tmp_path: Path, margins: Margins
) -> None:
    ctsan(*command, tmp_path / "one")
    one = rows(tmp_path / "one")
    assert [row["step"] for row in one if "losses" in row] == list(range(1, STEPS + 1))
    for ours, theirs in zip(rows(two), one, strict=True):
        assert ours["step"] == theirs["step"]
        assert ours.get("losses", {}) == pytest.approx(theirs.get("losses", {}), rel=1e-5, abs=1e-4)
        assert ours.get("metrics", {}) == pytest.approx(theirs.get("metrics", {}), abs=1e-3)
    totals = [row["total"] for row in one if "losses" in row]
    margins.below(
        "loss left", sum(totals[-4:]) / sum(totals[:4]), 1
    )  # of all clips, in the first and last epoch


@pytest.mark.slow
def test_stopped_two_processes_go_on_to_the_same_weights(
    command: list[str], two: Path, tmp_path: Path
) -> None:
    out = tmp_path / "stopped"
    first = launch(command, out)
    while not (out / CHECKPOINT_FILE).exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    assert 1 < len(rows(out)) < STEPS
    finish(launch(command, out))
    assert rows(out) == rows(two)
    assert (out / WEIGHTS_FILE).read_bytes() == (two / WEIGHTS_FILE).read_bytes()


@pytest.mark.slow
def test_an_error_of_the_first_ends_all_and_is_said_once(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    process = launch(command, tmp_path)
    began = time.monotonic()
    _, stderr = process.communicate(timeout=240)
    assert process.returncode != 0
    assert stderr.count("it is no run folder and not empty") == 1
    assert "OtherProcessError" not in stderr
    assert time.monotonic() - began < 60  # the others did not wait for it
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]
