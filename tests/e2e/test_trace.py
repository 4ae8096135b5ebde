"""`ctsan trace` from a trained run to a file, by the real command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import av
import click
import numpy as np
import pytest
import torch
from PIL import Image

from commands import ctsan
from ctsan.cli.trace import command
from ctsan.errors import CtsanError, UsageError
from ctsan.inference.loading import load_model
from ctsan.inference.onnx_model import OnnxModel
from ctsan.inference.predictor import Predictor
from ctsan.model.lstm import State
from ctsan.runs.trained_run import load_runs
from ctsan.text.vocabulary import BOS
from e2e.small_run import SMALL


@pytest.fixture(scope="module")
def run(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("traced") / "run"
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features", "--out", out)
    ctsan("train", "describe", *options, *SMALL)
    return out


@pytest.fixture(scope="module")
def clip(shapes: Path) -> Path:
    return shapes / "corpus/clips/0000.mp4"


def test_a_film_a_gif_and_a_figure(run: Path, clip: Path, tmp_path: Path) -> None:
    shown = json.loads(ctsan("trace", clip, "-o", tmp_path / "a.mp4", "--model", run, "--json").stdout)
    described = Predictor.load(run).describe(clip)
    assert shown["caption"] == described.caption
    words = [concept.word for concept in described.concepts]
    assert [concept["word"] for concept in shown["concepts"]] == words
    tracing = Predictor.load(run).trace(clip)
    raised = [word for word, is_raised in zip(words, tracing.is_raised, strict=True) if is_raised]
    assert raised
    assert [trace["concept"] for trace in shown["traces"]] == raised[:3]
    assert len({trace["trace"] for trace in shown["traces"]}) == len(raised[:3]) > 0
    for trace in shown["traces"]:  # from 1
        share = tracing.shares[words.index(trace["concept"]), trace["trace"] - 1]
        assert trace["share"] == pytest.approx(share, abs=1e-3)
        assert share > 0
    assert (shown["run"], tracing.captioned_by) == (str(run), (str(run),))
    effects = tracing.effects
    assert effects is not None
    assert shown["effects"]["words"] == list(tracing.words)
    assert shown["effects"]["concepts"] == words
    np.testing.assert_allclose(shown["effects"]["each"], effects.each, atol=1e-3)
    np.testing.assert_allclose(shown["effects"]["together"], effects.together, atol=1e-3)
    assert np.abs(effects.each).max() > 1e-3
    frames = []
    for path in (clip, tmp_path / "a.mp4"):
        with av.open(str(path)) as container:
            frames.append([frame.time for frame in container.decode(video=0)])
    np.testing.assert_allclose(frames[1], frames[0], atol=1e-3)
    _trace(clip, "-o", tmp_path / "a.gif", "--model", run, "--concept", raised[0])
    _trace(clip, "-o", tmp_path / "a.png", "--model", run, "--traces", "1,6,16")
    for name in ("a.gif", "a.png"):
        with Image.open(tmp_path / name) as image:
            assert image.width > 600


def test_the_tracing_is_what_the_model_did(run: Path, clip: Path) -> None:
    [trained] = load_runs([run])
    loaded = load_model(trained)
    predictor = Predictor([loaded])
    model, words_known = trained.model, trained.words
    candidates = words_known.concepts.words
    tracing = predictor.trace(clip)
    seen = {concept.word for concept in tracing.concepts}
    unseen = next(word for word in candidates if word not in seen)
    asked = predictor.trace(clip, concept=unseen)
    assert [concept.word for concept in asked.raised] == [*(each.word for each in tracing.concepts), unseen]
    # What the traces add, the bias and the score of the probe are the whole score.
    bias = model.clip_encoder.detector.name.bias.detach().numpy()
    scores = asked.shares.sum(axis=1) + [bias[candidates.index(each.word)] for each in asked.raised]
    scores += np.log(asked.probe_confidences / (1 - asked.probe_confidences))
    np.testing.assert_allclose(
        1 / (1 + np.exp(-scores)), [each.confidence for each in asked.raised], atol=1e-4
    )
    assert asked.has_probe
    np.testing.assert_allclose(tracing.attention.sum(axis=(2, 3)), 1, atol=1e-5)
    assert tracing.attention.shape == (len(tracing.times), 25, 5, 5)
    assert tracing.times[0] == 0
    assert (np.diff(tracing.times) > 0.3).all()
    np.testing.assert_allclose(tracing.rows, [0, 0.2, 0.4, 0.6, 0.8, 1])
    assert tracing.output_weights is not None
    assert tracing.input_weights is not None
    for weights in (tracing.output_weights, tracing.input_weights):
        assert weights.shape == (len(tracing.words), 4)
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)
    # Word by word, as the search does it: a word is said with the weights of the step that reads the last.
    encoding = predictor.encode(clip).encoding(loaded)
    concepts = torch.from_numpy(encoding.concepts)
    state, last = State(torch.from_numpy(encoding.hidden), torch.from_numpy(encoding.cell)), BOS
    numbers = words_known.vocabulary.encode(tracing.words)
    with torch.inference_mode():
        for place, number in enumerate(numbers):
            words = model.clip_encoder.embedding(torch.tensor([[last]]))
            decoded, state = model.decode(words, concepts, state)
            np.testing.assert_allclose(tracing.output_weights[place], decoded.output_weights[0, 0], atol=1e-5)
            if place:
                np.testing.assert_allclose(
                    tracing.input_weights[place - 1], decoded.input_weights[0, 0], atol=1e-5
                )
            last = number


def test_what_cannot_be_drawn_says_so_and_leaves_nothing(run: Path, clip: Path, tmp_path: Path) -> None:
    word = Predictor.load(run).models[0].concepts.words[0]
    picture, folder, text = tmp_path / "a.png", tmp_path / "folder.png", tmp_path / "text.mp4"
    folder.mkdir()
    text.write_text("no video")
    model = ("--model", run)
    for message, arguments in (
        ("End it in .mp4, .gif or .png.", (clip, "-o", tmp_path / "a.avi")),
        ("no trace 0, 99: the model's traces are 1 to 25", (clip, "-o", picture, "--traces", "0,16,99")),
        ("give 'best', or numbers", (clip, "-o", picture, "--traces", "first")),
        (f"Did you mean '{word}'?", (clip, "-o", picture, "--concept", f"{word}{word[-1]}")),
        ("there is no such file", (tmp_path / "gone.mp4", "-o", picture)),
        ("this is text, not a video", (text, "-o", picture)),
        ("this is the clip itself", (clip, "-o", clip)),
        ("this is a folder", (clip, "-o", folder)),
    ):
        with pytest.raises((CtsanError, click.UsageError), match=re.escape(message)):
            _trace(*arguments, *model)
    assert str(text) in ctsan("trace", clip, "-o", text / "a.png", *model, exit_code=2).stderr
    assert sorted(tmp_path.iterdir()) == [folder, text]


def test_a_model_without_a_detector_says_so(run: Path, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = Predictor.load(run)
    monkeypatch.setattr(OnnxModel, "has_traces", False)
    with pytest.raises(UsageError, match="The model has no concept detector, so no traces"):
        predictor.trace(clip)


def _trace(*arguments: object) -> None:
    command.main([str(argument) for argument in arguments], standalone_mode=False)
