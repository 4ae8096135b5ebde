"""The models of a library, also where another machine has indexed it."""

from __future__ import annotations

from pathlib import Path

from ctsan.runs.run_folder import weights_digest
from ctsan.runs.trained_run import run_folders
from ctsan.search.library_format import RunFingerprint
from ctsan.search.models import stored_folders


def test_runs_that_ctsan_carries_are_found_wherever_they_were(tmp_path: Path) -> None:
    carried = run_folders(Path("default"))
    elsewhere = [RunFingerprint("/elsewhere/run", folder.name, weights_digest(folder)) for folder in carried]
    assert stored_folders(elsewhere) == carried
    own = [RunFingerprint(str(tmp_path), "embed", "0" * 64), RunFingerprint("/gone", "describe", "1" * 64)]
    assert stored_folders([*own, elsewhere[0]]) == [tmp_path, Path("/gone"), carried[0]]
