"""The measurement of docs/serve.md, for seconds: many clients at the real command, and a worker is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench" / "serve.py"


def test_nothing_is_lost_with_many_clients_and_a_killed_worker(models: list[Path], corpus: Path) -> None:
    named = [option for folder in models[:3] for option in ("--model", str(folder))]
    command = [sys.executable, str(BENCH), *named, "--clips", str(corpus / "clips"), "--json"]
    printed = subprocess.run(
        [*command, "--clients", "20", "--seconds", "8"], capture_output=True, text=True, check=True
    )
    found = json.loads(printed.stdout)
    assert found["workers_killed"] == 1
    assert found["failures"] == []
    assert found["clips_taken"] == found["clips_finished"] > 0
    assert set(found["requests"]) == {"upload", "description", "traces", "fill", "choose"}
    assert found["files_left"] == found["files_left_after_stop"] == 0
    assert found["memory_mb"]["highest"] < found["memory_mb"]["before"] + 1500
