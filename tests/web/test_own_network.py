"""A page whose models look through different networks, with frames of different sizes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from commands import ctsan_here
from ctsan.inference.predictor import Predictor
from ctsan.web.app import create_app
from ctsan.web.limits import Limits
from e2e.small_run import SMALL
from video.own_networks import write_graph
from web.serving import load_predictor, served, until, upload


def test_clips_and_shots_are_read_by_every_network(
    corpus: Path, models: list[Path], long_clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTSAN_CACHE", str(tmp_path / "cache"))
    net, run = write_graph(tmp_path / "net.onnx"), tmp_path / "run"
    options = ("--corpus", corpus, "--backbone", f"onnx:{net}", *SMALL, "--set=training.epochs=1")
    ctsan_here("train", "describe", *options, "--out", run)
    both = [models[0], run]
    app = create_app(load_predictor(both), limits=Limits(workers=1))
    with served(app) as client:
        clip_id = upload(client, long_clip)
        until(client, clip_id, "ready")
        answer = client.get(f"/api/clips/{clip_id}/description").json()
        while (shots := client.get(f"/api/clips/{clip_id}/shots").json())["state"] == "reading":
            time.sleep(0.1)
    predictor = Predictor.load(*both)
    assert answer["caption"] == predictor.describe(long_clip).captions[0].text
    scenes = [(each.start, each.caption.text) for each in predictor.describe_scenes(long_clip)]
    assert len(scenes) == 4
    assert [(shot["start"], shot["caption"]) for shot in shots["shots"]] == scenes
