"""The recipe of CONTRIBUTING.md for a backbone: one record in `BACKBONES`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ctsan.errors import UsageError
from ctsan.video.backbones import BACKBONES, BackboneSpec, backbone_of, find_backbone
from ctsan.video.backbones.weights import read_state
from ctsan.video.engine import load_engine
from ctsan.video.extraction import recipe_of
from video.own_networks import CHANNELS, SIZE, Grid, seeded


def load(weights: Path) -> nn.Module:
    network = Grid()
    network.load_state_dict(read_state(weights))
    return network


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CTSAN_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "mine.safetensors"
    save_file(seeded(Grid).state_dict(), file)
    spec = BackboneSpec(
        name="mine",
        image_size=SIZE,
        map_size=(7, 7),
        channels=CHANNELS,
        mean=(127.0, 127.0, 127.0),
        std=(128.0, 128.0, 128.0),
        packaged=lambda: file,
        load=load,
    )
    monkeypatch.setitem(BACKBONES, spec.name, spec)
    return file


@pytest.mark.usefixtures("weights")
def test_a_record_is_all_that_a_network_needs() -> None:
    backbone = find_backbone("mine")
    frames = np.random.default_rng(0).integers(0, 256, (5, SIZE, SIZE, 3), dtype=np.uint8)
    maps = load_engine(backbone, engine="torch")(frames)
    assert maps.shape == (5, 4, 4, CHANNELS)  # 7 x 7 cells, pooled by two
    pixels = (torch.from_numpy(frames).permute(0, 3, 1, 2).float() - 127) / 128
    with torch.no_grad():
        whole = seeded(Grid)(pixels).numpy()  # (N, C, 7, 7)
    np.testing.assert_allclose(maps[:, 0, 0], whole[:, :, :2, :2].max(axis=(2, 3)), atol=0.01)


def test_a_run_finds_the_network_by_its_features(weights: Path) -> None:
    recipe = recipe_of(find_backbone("mine"), mirrored=False)
    assert backbone_of(recipe).weights == weights
    save_file({"conv.weight": torch.zeros(1)}, weights)
    with pytest.raises(UsageError, match="these weights .* are not found"):
        backbone_of(recipe)
