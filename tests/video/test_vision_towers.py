"""CLIP, SigLIP and DINOv2 as `transformers` saves them, with drawn weights: their patches are the map."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ctsan.errors import UsageError
from ctsan.video.backbones import backbone_of, find_backbone
from ctsan.video.engine import TOLERANCE, load_engine
from ctsan.video.extraction import recipe_of
from ctsan.video.store import Recipe

transformers = pytest.importorskip("transformers")

VISION = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 80,
    "patch_size": 16,
}
TEXT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 50}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTSAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def saved(kind: str, folder: Path) -> Any:
    """The vision tower of a model that is saved whole, with its image processor."""
    torch.manual_seed(0)
    t, size = transformers, {"height": 80, "width": 80}
    match kind:
        case "clip":
            model = t.CLIPModel(t.CLIPConfig(vision_config=VISION, text_config=TEXT))
            t.CLIPImageProcessor(size={"shortest_edge": 80}, crop_size=size).save_pretrained(folder)
            tower = model.vision_model
        case "siglip":
            model = t.SiglipModel(t.SiglipConfig(vision_config=VISION, text_config=TEXT))
            t.SiglipImageProcessor(size=size).save_pretrained(folder)
            tower = model.vision_model
        case "dinov2":
            # Made for 160 pixels, and the processor gives it 80.
            tower = model = t.Dinov2Model(t.Dinov2Config(**{**VISION, "image_size": 160}))
            processor = {"crop_size": size, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}
            folder.mkdir()
            (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    model.save_pretrained(folder)
    return tower.eval()


@pytest.mark.parametrize(
    ("kind", "mean", "std", "prefix"),
    [
        ("clip", (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711), 1),
        ("siglip", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), 0),
        ("dinov2", (0.4, 0.5, 0.6), (0.2, 0.3, 0.4), 1),
    ],
)
def test_the_patches_of_a_tower_are_the_map(
    kind: str, mean: tuple[float, ...], std: tuple[float, ...], prefix: int, tmp_path: Path
) -> None:
    tower = saved(kind, tmp_path / kind)
    backbone = find_backbone(f"hf:{tmp_path / kind}")
    assert (backbone.name, backbone.image_size) == (f"hf:{kind}", 80)
    assert (backbone.spec.map_size, backbone.grid, backbone.channels) == ((5, 5), (3, 3), 32)
    frames = np.random.default_rng(0).integers(0, 256, (3, 80, 80, 3), dtype=np.uint8)
    pixels = (torch.from_numpy(frames).permute(0, 3, 1, 2) / 255 - torch.tensor(mean).view(3, 1, 1)) / (
        torch.tensor(std).view(3, 1, 1)
    )
    with torch.no_grad():
        tokens = tower(pixel_values=pixels).last_hidden_state[:, prefix:]
    patches = tokens.reshape(3, 5, 5, 32).permute(0, 3, 1, 2)
    wanted = F.max_pool2d(patches, 2, ceil_mode=True).permute(0, 2, 3, 1).numpy()
    value = json.loads(json.dumps(asdict(recipe_of(backbone, mirrored=False))))
    again = backbone_of(Recipe(**{**value, "grid": tuple(value["grid"])}))  # as a run finds it
    for found in (load_engine(backbone, engine="torch"), load_engine(again, engine="onnxruntime")):
        np.testing.assert_allclose(found(frames).astype(np.float32), wanted, atol=TOLERANCE)


def test_only_safetensors_are_read(tmp_path: Path) -> None:
    saved("clip", tmp_path / "clip")
    (tmp_path / "clip" / "model.safetensors").rename(tmp_path / "clip" / "pytorch_model.bin")
    with pytest.raises(UsageError, match="there is no model.safetensors.*other formats are not read"):
        find_backbone(f"hf:{tmp_path / 'clip'}")


def test_what_is_no_tower_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # a test asks nobody
    with pytest.raises(UsageError, match="neither a folder here nor a model that transformers finds"):
        find_backbone("hf:nobody/nothing")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(UsageError, match="a model of the type 'bert'.*--backbone onnx:FILE"):
        find_backbone(f"hf:{tmp_path}")
    with pytest.raises(UsageError, match="--weights does not go with hf:"):
        find_backbone(f"hf:{tmp_path}", tmp_path)


def test_a_tower_without_a_processor_gets_the_usual_normalisation_and_this_is_said(tmp_path: Path) -> None:
    saved("siglip", tmp_path / "siglip")
    (tmp_path / "siglip" / "preprocessor_config.json").unlink()
    backbone = find_backbone(f"hf:{tmp_path / 'siglip'}")
    assert backbone.mean == backbone.std == (127.5,) * 3
    assert any("there is no preprocessor_config.json" in said for said in backbone.assumed)
