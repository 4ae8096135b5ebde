"""What keeps the commands quick: nothing is imported, read or computed that is not needed."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from clip_making import counting, encode
from commands import ctsan_here
from ctsan.inference.encoded_clip import EncodedClip
from ctsan.inference.featurizer import ClipFeaturizer
from ctsan.inference.predictor import Predictor
from ctsan.video.backbones import network_key
from ctsan.video.clip_maps import subsample_maps
from ctsan.video.frames import sample_frames

Runs = dict[str, Path]

HEAVY = {"torch", "numpy", "av", "onnxruntime", "spacy", "gensim"}


def test_help_comes_without_heavy_imports() -> None:
    code = (
        "import sys; from ctsan.cli import group; group.main(['describe', '--help'], standalone_mode=False); "
        f"sys.exit(', '.join(sorted({HEAVY!r} & set(sys.modules))) or 0)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Time on a processor, not on the clock of a busy machine: a tenth of a second as a rule.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


def test_timing_names_every_part(runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clip = encode(tmp_path / "a.mp4", counting(24))
    ctsan_here("describe", clip, "--model", runs["describe"], "--timing")
    spent = dict(re.findall(r"^(\w+(?: \w+)?) +(\d+\.\d\d) s$", capsys.readouterr().err, re.MULTILINE))
    assert list(spent) == ["import", "load", "decode", "backbone", "model", "in all"]


def test_the_backbone_sees_only_the_frames_that_a_model_takes_in(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip = encode(tmp_path / "a.mp4", counting(240), rate=24)  # 24 samples
    [model] = Predictor.load(runs["describe"]).models
    featurizer = ClipFeaturizer(None)
    backbone, engine = featurizer.backbone(model.recipe), featurizer.engine(model.recipe)
    seen: list[NDArray[np.uint8]] = []

    def recorded(frames: NDArray[np.uint8]) -> NDArray[np.float16]:
        seen.append(frames)
        return engine(frames)

    monkeypatch.setattr(featurizer, "_engines", {network_key(model.recipe): recorded})
    encoded = EncodedClip(featurizer.featurize(clip, [model]))
    encoded.encoding(model)
    most = model.settings.model.max_frames
    assert [len(frames) for frames in seen] == [most]
    assert len(encoded.times) == 24
    pixels = sample_frames(clip, size=backbone.image_size).pixels
    np.testing.assert_array_equal(seen[0], subsample_maps(pixels, most))  # type: ignore[arg-type]  # frames are thinned out as maps are
