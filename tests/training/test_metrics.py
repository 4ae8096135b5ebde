from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ctsan.errors import RunError, StorageError
from ctsan.training import metrics as metrics_module
from ctsan.training.metrics import MetricsLog, read_metrics


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


ROW = {"step": 2, "epoch": 1, "metrics": {"CIDEr": 0.1}}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "line 2 is not JSON"),
        (b"[" * 100_000, "line 2 is not JSON"),
        (b"\xff", "line 2 is not JSON"),
        (b"1" * 5_000, "line 2 is not JSON"),
        (b"[]", "line 2 is not an object"),
        (b"{}", "it has no 'step'"),
        (b'{"step": "2"}', "its 'step' is '2', not a whole number"),
        (b'{"step": -2}', "its 'step' is -2"),
        (b'{"step": 2, "metrics": [1]}', "the 'metrics' of line 2 are not numbers"),
        (b'{"step": 2, "metrics": {"CIDEr": "0.1"}}', "the 'metrics' of line 2 are not numbers"),
        (b'{"step": 2, "metrics": {"CIDEr": Infinity}}', "the 'metrics' of line 2 are not numbers"),
        (b'{"step": 2, "losses": {"words": 1' + b"0" * 400 + b"}}", "the 'losses' of line 2 are not numbers"),
        (b'{"step": 2, "losses": {"words": 1}, "total": []}', "the 'total' of line 2 is not a number"),
    ],
)
def test_a_damaged_row_is_named(tmp_path: Path, line: bytes, said: str) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(json.dumps(ROW).encode() + b"\n" + line + b"\n")
    with pytest.raises(RunError, match=said) as caught:
        read_metrics(file)
    assert str(caught.value).startswith(f"{file}: the metrics cannot be read (")


def test_rows_are_read_as_they_were_written_and_null_stands_for_what_is_no_number(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    log = MetricsLog(file, size=0, step=0)
    log.write({**ROW, "metrics": {"CIDEr": float("nan"), "count": 3}})
    log.close()
    with file.open("ab") as stream:
        stream.write(b'{"step": 3')  # of a process that was killed
    assert read_metrics(file) == [{**ROW, "metrics": {"CIDEr": None, "count": 3}}]


def test_what_is_no_file_is_not_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        with pytest.raises(RunError, match="Put it back from a copy"):
            MetricsLog(place, size=0, step=0)
        with pytest.raises(RunError, match="the metrics cannot be read"):
            read_metrics(place)


def test_a_full_disk_is_one_message_also_when_the_log_is_closed(tmp_path: Path) -> None:
    """Nothing is left in a buffer, to fail again on closing."""
    log = MetricsLog(tmp_path / "metrics.jsonl", size=0, step=0)
    with Path("/dev/full").open("wb", buffering=0) as device:
        log._rows.close()
        log._rows = device
        with pytest.raises(StorageError, match="metrics.jsonl: No space left on device. Free some space"):
            log.write(ROW)
        log.close()


def test_the_name_of_a_new_file_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(metrics_module, "sync", synced.append)
    MetricsLog(tmp_path / "metrics.jsonl", size=0, step=0).close()
    assert synced == [tmp_path]
