"""The measurement of docs/serve.md, for seconds: many clients at the real command, and a worker is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ctsan.web.limits import Limits

BENCH = Path(__file__).parents[2] / "bench" / "serve.py"


def test_nothing_is_lost_with_many_clients_and_a_killed_worker(models: list[Path], corpus: Path) -> None:
    named = [option for folder in models[:3] for option in ("--model", str(folder))]
    command = [sys.executable, str(BENCH), *named, "--clips", str(corpus / "clips"), "--json"]
    printed = subprocess.run(
        [*command, "--clients", "20", "--seconds", "8"], capture_output=True, text=True, check=False
    )
    found = json.loads(printed.stdout)
    assert found["workers_killed"] == 2
    assert found["failures"] == []
    assert found["clips_taken"] == found["clips_finished"] > 0
    assert set(found["requests"]) == {"upload", "description", "traces", "fill", "choose"}
    start, middle, end = (found["resources"][when] for when in ("start", "middle", "end"))
    assert found["files_left_after_stop"] == middle["temporary_files"] == end["temporary_files"] == 0
    assert found["highest_memory_mb"] < start["memory_mb"] + 1500
    assert end["processes"] <= 1 + Limits().workers
    assert end["open_files"] <= start["open_files"] + 10
