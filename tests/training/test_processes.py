"""Several processes learn what one learns with the same batches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ctsan.runs.checkpoint import load_weights
from ctsan.runs.weights import WEIGHTS_FILE
from ctsan.training.metrics import METRICS_FILE, read_metrics
from ctsan.training.processes import Processes
from training.stand_in import StandIn

TESTS = Path(__file__).parents[1]
# 21 examples in batches of 5: shards of 3 and 2, and at last one example, none for the second process.
SETTINGS = (
    "training.batch_size=5",
    "training.epochs=8",
    "training.report_every=1",
    "training.patience=2",
    "training.evaluate_every=2",
    "dropout=0",
)


def run(folder: Path, *, processes: int, settings: tuple[str, ...] = SETTINGS) -> list[dict[str, Any]]:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    script = ["-m", "training.run_stand_in", str(folder), *settings]
    command = [sys.executable, *(launch if processes > 1 else []), *script]
    environment = os.environ | {"PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return read_metrics(folder / METRICS_FILE)


@pytest.mark.slow
def test_two_processes_have_the_loss_curve_of_one(tmp_path: Path) -> None:
    one, two = (run(tmp_path / str(count), processes=count) for count in (1, 2))
    assert [(row["step"], row["epoch"]) for row in two] == [(row["step"], row["epoch"]) for row in one]
    assert len(one) == 40 + 4
    for ours, theirs in zip(two, one, strict=True):
        for kind in ("losses", "metrics"):
            assert ours.get(kind) == pytest.approx(theirs.get(kind), abs=1e-5)
    weights = []
    for count in (1, 2):
        model = StandIn().model
        load_weights(tmp_path / str(count) / WEIGHTS_FILE, model)
        weights.append(torch.cat([parameter.flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], atol=1e-5, rtol=0)


def test_shards_make_up_the_batch() -> None:
    batch = [7, 1, 4, 2, 9, 3, 8]
    shards = [Processes(rank, 3, torch.device("cpu")).shard(batch) for rank in range(3)]
    assert sorted(example for examples, _ in shards for example in examples) == sorted(batch)
    assert [len(examples) / len(batch) for examples, _ in shards] == [share for _, share in shards]


def test_a_process_without_examples_counts_for_nothing() -> None:
    assert Processes(1, 2, torch.device("cpu")).shard([5]) == ([5], 0.0)
