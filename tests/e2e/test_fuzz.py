"""Mutated files and requests give a result or a message, for a minute from seed 0: see bench/fuzz.py."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FUZZ = Path(__file__).parents[2] / "bench" / "fuzz.py"


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_fuzz", FUZZ)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_fuzz"] = module  # for its dataclasses
    spec.loader.exec_module(module)
    return module


def test_a_minute_of_mutated_inputs_finds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(FUZZ), "--minutes", "1", "--out", str(tmp_path / "findings")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr[-2000:]
    assert not (tmp_path / "findings").exists()


def test_a_case_is_the_same_every_time_and_differs_from_its_seed(fuzz: ModuleType) -> None:
    content = b'{"version": 1, "clips": ["a.mp4", "b.mp4"]}'
    first, second = ([fuzz.mutate(content, random.Random(case)) for case in range(50)] for _ in range(2))
    assert first == second
    assert sum(mutated != content for mutated in first) > 45


def test_faults_with_one_cause_are_one_kind(fuzz: ModuleType) -> None:
    trace = 'Traceback\n  File "/x/src/ctsan/video/store.py", line {line}, in f\nValueError: {message}\n'
    same = [trace.format(line=7, message=message) for message in ("a", "b")]
    assert fuzz.kind_of(same[0]) == fuzz.kind_of(same[1]) == "ValueError at video/store.py:7"
    assert fuzz.kind_of(trace.format(line=8, message="a")) != fuzz.kind_of(same[0])
