"""`ctsan train … --ensemble N`: several runs, one after the other, with the same words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import ctsan
from ctsan.runs.run_folder import CHECKPOINT_FILE, open_run
from ctsan.runs.weights import WEIGHTS_FILE
from e2e.small_run import SMALL


def command(shapes: Path, out: Path, *more: object) -> list[str]:
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features", "--out", out, *SMALL, *more)
    return ["train", "describe", *map(str, options)]


@pytest.fixture(scope="module")
def ensemble(shapes: Path) -> Path:
    """Killed while it trained its second member, and gone on with."""
    out = shapes / "ensemble"
    asked = command(shapes, out, "--ensemble", 2, "--set=training.seed=7")
    process = subprocess.Popen([sys.executable, "-m", "ctsan", *asked], stderr=subprocess.DEVNULL)
    while not (out / "2" / CHECKPOINT_FILE).exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    files = [out / "1" / name for name in (CHECKPOINT_FILE, WEIGHTS_FILE)]
    done = [file.stat().st_mtime_ns for file in files]
    result = ctsan(*asked)
    assert [file.stat().st_mtime_ns for file in files] == done  # not trained again
    assert "Preparing the words" not in result.stderr
    assert result.stdout.count("6 steps; the best weights are") == 2
    assert f"ctsan describe … --model {out / '1'} --model {out / '2'}" in result.stdout
    return out


def test_members_differ_in_their_seeds_and_share_their_words(ensemble: Path) -> None:
    one, two = ensemble / "1", ensemble / "2"
    assert [open_run(member).settings.training.seed for member in (one, two)] == [7, 8]
    assert (one / WEIGHTS_FILE).read_bytes() != (two / WEIGHTS_FILE).read_bytes()
    for file in (one / "words").iterdir():
        assert file.read_bytes() == (two / "words" / file.name).read_bytes()


def test_one_run_does_not_become_an_ensemble(shapes: Path, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("{}", encoding="utf-8")
    refused = ctsan(*command(shapes, tmp_path, "--ensemble", 2), exit_code=2).stderr
    assert f"{tmp_path}: it holds one run, not an ensemble" in refused
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


@pytest.mark.slow
def test_two_processes_train_an_ensemble_that_starts_from_a_run(shapes: Path, ensemble: Path) -> None:
    source, out = ensemble / "1", shapes / "two-from"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    asked = command(shapes, out, "--ensemble", 2, "--from", source, "--json")
    result = subprocess.run(
        [*torchrun, "-m", "ctsan", *asked],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)  # one object: only the first process prints
    assert found["run"] == str(out)
    assert [member["run"] for member in found["members"]] == [str(out / "1"), str(out / "2")]
    assert all(member["steps"] == 6 for member in found["members"])
    assert result.stderr.count("Starting from") == 1
    for name in ("1", "2"):
        origin = open_run(out / name).origin
        assert origin is not None
        assert origin.run == str(source)
