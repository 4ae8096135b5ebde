from __future__ import annotations

from pathlib import Path

import pytest

from ctsan.training.metrics import MetricsLog


def test_tensorboard_shows_the_rows_that_the_file_holds(tmp_path: Path) -> None:
    """What was written after the checkpoint and comes again is there once."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = MetricsLog(tmp_path / "metrics.jsonl", size=0, step=0)
    log.write({"step": 1, "epoch": 1, "losses": {"words": 4.0}, "total": 4.0})
    size = log.size()
    log.write({"step": 2, "epoch": 1, "metrics": {"CIDEr": 0.1, "precision on train": 0.5}})
    log.close()
    log = MetricsLog(tmp_path / "metrics.jsonl", size=size, step=1)
    log.write({"step": 2, "epoch": 1, "metrics": {"CIDEr": 0.25, "precision on train": 0.5}})
    log.close()
    shown = EventAccumulator(str(tmp_path / "tensorboard"))
    shown.Reload()
    assert set(shown.Tags()["scalars"]) == {
        "losses/words",
        "total",
        "metrics/CIDEr",
        "metrics/precision on train",
    }
    assert [(row.step, row.value) for row in shown.Scalars("losses/words")] == [(1, 4.0)]
    assert [(row.step, row.value) for row in shown.Scalars("metrics/CIDEr")] == [(2, 0.25)]
