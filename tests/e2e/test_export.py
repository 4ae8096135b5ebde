"""`ctsan export`: a run as ONNX files that caption a clip without ctsan or PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import ctsan.export.onnx
from commands import ctsan_here
from ctsan.errors import CtsanError, UsageError
from ctsan.export.onnx import TOLERANCE, export_onnx
from ctsan.inference.loaded_model import Captioner
from ctsan.inference.loading import load_models
from ctsan.inference.predictor import Predictor
from ctsan.runs.trained_run import load_runs
from ctsan.text.vocabulary import BOS, EOS, NEVER_SAID
from ctsan.video.store import FeatureStore

Runs = dict[str, Path]

EXAMPLE = Path(__file__).parents[2] / "examples/onnx_captions.py"


@pytest.fixture(scope="module")
def exported(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    folder = tmp_path_factory.mktemp("onnx")
    [run] = load_runs([runs["describe"]])
    return folder, export_onnx(run, folder)


def test_every_network_computes_what_pytorch_does(exported: tuple[Path, dict[str, float]]) -> None:
    folder, differences = exported
    assert list(differences) == ["backbone.onnx", "detector.onnx", "step.onnx"]
    assert all(0 <= difference <= TOLERANCE for difference in differences.values())
    assert {file.name for file in folder.iterdir()} == {*differences, "model.json"}


def test_the_example_captions_a_clip_without_ctsan(
    exported: tuple[Path, dict[str, float]], runs: Runs, shapes: Path
) -> None:
    clip = shapes / "corpus/clips/0000.mp4"
    # Neither of them can be imported: the example has to do without.
    code = (
        "import sys, runpy; sys.modules['torch'] = sys.modules['ctsan'] = None; "
        f"sys.argv = ['', {str(clip)!r}, {str(exported[0])!r}]; "
        f"runpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    seen, caption = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    [model] = load_models([runs["describe"]])
    assert isinstance(model, Captioner)
    [clip_id] = [name for name in FeatureStore(shapes / "features") if name.endswith("0000.mp4")]
    steps = model.steps(model.encode([FeatureStore(shapes / "features")[clip_id].maps]))
    state, said = steps.start(), [BOS]
    while said[-1] != EOS and len(said) <= model.settings.decoding.max_words:  # the likeliest word each time
        scores, state = steps.next_words(np.array(said[-1:]), state, (0,))
        again = [after for word, after in pairwise(said) if word == said[-1]]
        scores[:, [BOS, *NEVER_SAID, *again]] = -np.inf
        said.append(int(scores.argmax()))
    assert caption == " ".join(model.vocabulary.decode(word for word in said[1:] if word != EOS))
    concepts = Predictor([model]).concepts(clip)
    assert seen == f"seen: {', '.join(concept.word for concept in concepts)}"


def test_the_example_is_short() -> None:
    source = EXAMPLE.read_text(encoding="utf-8")
    body = source.partition("def caption")[2].partition("if __name__")[0]
    assert len(body.strip().splitlines()) <= 32


def test_a_network_that_differs_is_not_written(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctsan.export.onnx, "TOLERANCE", 0.0)
    [run] = load_runs([runs["describe"]])
    with pytest.raises(CtsanError, match="backbone.onnx: ONNX Runtime and PyTorch differ by"):
        export_onnx(run, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_exported_says_so(runs: Runs, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="A run of 'describe' is needed"):
        ctsan_here("export", runs["fill"], "--onnx", tmp_path)


def test_of_the_embedded_model_the_run_with_a_detector_is_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ctsan_here("export", "default", "--onnx", tmp_path, "--json")
    printed = capsys.readouterr()
    assert Path(json.loads(printed.out)["run"]).name == "describe"
    assert "runs caption there as an ensemble, and one is exported" in printed.err
    assert len(list(tmp_path.iterdir())) == 4


def test_the_command_tells_sizes_and_differences(
    exported: tuple[Path, dict[str, float]],
    runs: Runs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(ctsan.export.onnx, "export_onnx", lambda run, out, weights: exported[1])
    ctsan_here("export", runs["describe"], "--onnx", exported[0])
    assert "backbone.onnx" in capsys.readouterr().out
    ctsan_here("export", runs["describe"], "--onnx", tmp_path, "--json")
    assert json.loads(capsys.readouterr().out)["differences"] == exported[1]
