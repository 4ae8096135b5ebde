"""Networks of users: what is found out of ONNX files and vision towers, and that their maps are right."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto
from torch.nn import functional as F

from ctsan.errors import UsageError
from ctsan.io.paths import cache_folder
from ctsan.video.backbones import Backbone, backbone_of, find_backbone, network_key
from ctsan.video.backbones.composing import write_composed
from ctsan.video.backbones.registry import IMAGENET_MEAN, IMAGENET_STD
from ctsan.video.engine import load_engine, run_network
from ctsan.video.extraction import recipe_of
from ctsan.video.store import Recipe
from video.own_networks import CHANNELS, SIZE, Grid, Vector, export, seeded, write_graph

TINY_VIT = os.environ.get("CTSAN_TINY_VIT")  # tiny_vit_5m_224_in22k_patch.onnx, where it is there

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTSAN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def frames() -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (5, SIZE, SIZE, 3), dtype=np.uint8)


def wanted(frames: Pixels, mean: object = IMAGENET_MEAN, std: object = IMAGENET_STD, pool: int = 2) -> Floats:
    """What PyTorch makes of the grid network, as (N, h, w, C)."""
    pixels = (frames.astype(np.float32) - np.array(mean, np.float32)) / np.array(std, np.float32)
    with torch.no_grad():
        maps = seeded(Grid)(torch.from_numpy(pixels).permute(0, 3, 1, 2))
    return F.max_pool2d(maps, pool, ceil_mode=True).permute(0, 2, 3, 1).numpy()


def maps_of(backbone: Backbone, frames: Pixels) -> Floats:
    return load_engine(backbone, engine="onnxruntime")(frames).astype(np.float32)


def as_a_run_has_it(backbone: Backbone) -> Recipe:
    """A recipe that has been written as JSON and read again."""
    value = json.loads(json.dumps(asdict(recipe_of(backbone, mirrored=False))))
    return Recipe(**{**value, "grid": tuple(value["grid"])})


def test_an_exported_network_with_a_map_is_understood(tmp_path: Path, frames: Pixels) -> None:
    backbone = find_backbone(f"onnx:{export(seeded(Grid), tmp_path / 'net.onnx')}")
    assert (backbone.name, backbone.image_size) == ("onnx:net.onnx", SIZE)
    assert (backbone.spec.map_size, backbone.grid, backbone.channels) == ((7, 7), (4, 4), CHANNELS)
    assert any("ImageNet" in said for said in backbone.assumed)
    np.testing.assert_allclose(maps_of(backbone, frames), wanted(frames), atol=0.01)


def test_an_exported_network_with_a_vector_is_understood(tmp_path: Path, frames: Pixels) -> None:
    backbone = find_backbone(f"onnx:{export(seeded(Vector), tmp_path / 'net.onnx')}")
    assert (backbone.grid, backbone.channels, backbone.spec.pool) == ((1, 1), CHANNELS, 1)
    whole = wanted(frames, pool=1).mean(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(maps_of(backbone, frames), whole, atol=0.01)


@pytest.mark.parametrize(
    ("options", "layout", "prefix"),
    [
        ({"output": "channels_last"}, "NHWC", 0),
        ({"output": "tokens"}, "tokens", 0),
        ({"output": "tokens", "prefix": 1}, "tokens", 1),
        ({"output": "tokens", "prefix": 5}, "tokens", 5),
        ({"output": "mean maps"}, "NCHW", 0),  # the map is taken
        ({"batch": 1}, "NCHW", 0),
        ({"batch": 3}, "NCHW", 0),
    ],
)
def test_all_layouts_give_the_same_maps(
    tmp_path: Path, frames: Pixels, options: dict[str, object], layout: str, prefix: int
) -> None:
    backbone = find_backbone(f"onnx:{write_graph(tmp_path / 'net.onnx', **options)}")  # type: ignore[arg-type]
    graph = backbone.spec.graph
    assert graph is not None
    assert (graph.output_layout, graph.prefix_tokens) == (layout, prefix)
    np.testing.assert_allclose(maps_of(backbone, frames), wanted(frames), atol=0.01)


def test_bytes_go_in_as_they_are(tmp_path: Path, frames: Pixels) -> None:
    path = write_graph(tmp_path / "net.onnx", kind=TensorProto.UINT8, size="side")
    (tmp_path / "net.onnx.json").write_text(json.dumps({"size": SIZE}))
    backbone = find_backbone(f"onnx:{path}")
    assert backbone.spec.graph is not None
    assert (backbone.spec.graph.input_layout, backbone.spec.graph.input_type) == ("NHWC", "uint8")
    assert not any("ImageNet" in said for said in backbone.assumed)
    np.testing.assert_allclose(maps_of(backbone, frames), wanted(frames, 0, 1), rtol=2e-3)


def test_the_json_beside_a_file_says_what_the_file_does_not(tmp_path: Path, frames: Pixels) -> None:
    """Another size, another normalisation, a layer, another pooling; the run keeps all of it."""
    path = write_graph(tmp_path / "net.onnx", output="mean", size="side")
    said = {"size": SIZE, "scale": 1.0, "mean": [120, 110, 100], "std": 60, "output": "maps", "pool": 7}
    (tmp_path / "net.onnx.json").write_text(json.dumps(said))
    backbone = find_backbone(f"onnx:{path}")
    assert backbone.grid == (1, 1)
    assert backbone.assumed == ()
    maps = wanted(frames, (120, 110, 100), (60, 60, 60), pool=7)
    np.testing.assert_allclose(maps_of(backbone, frames), maps, atol=0.01)
    recipe = as_a_run_has_it(backbone)
    (tmp_path / "net.onnx.json").unlink()
    again = backbone_of(recipe)
    assert again.spec.graph == backbone.spec.graph
    assert network_key(recipe_of(again, mirrored=True)) == network_key(recipe)
    np.testing.assert_array_equal(maps_of(again, frames), maps_of(backbone, frames))


def test_a_network_of_any_size_takes_frames_of_224_pixels_and_this_is_said(tmp_path: Path) -> None:
    backbone = find_backbone(f"onnx:{write_graph(tmp_path / 'net.onnx', size='side')}")
    assert (backbone.image_size, backbone.spec.map_size, backbone.spec.pool) == (224, (28, 28), 7)
    assert any(said.startswith("224 pixels a side") for said in backbone.assumed)


@pytest.mark.parametrize("options", [{}, {"output": "tokens", "prefix": 1}, {"kind": TensorProto.UINT8}])
def test_a_network_is_written_with_its_preprocessing_and_pooling(
    tmp_path: Path, frames: Pixels, options: dict[str, object]
) -> None:
    import onnxruntime

    backbone = find_backbone(f"onnx:{write_graph(tmp_path / 'net.onnx', **options)}")  # type: ignore[arg-type]
    write_composed(backbone, tmp_path / "backbone.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "backbone.onnx", providers=["CPUExecutionProvider"])
    [maps] = session.run(["maps"], {"frames": frames})
    np.testing.assert_allclose(maps, run_network(backbone)(frames), rtol=1e-4, atol=1e-4)


def test_openvino_gives_the_same_maps(tmp_path: Path, frames: Pixels) -> None:
    pytest.importorskip("openvino")
    backbone = find_backbone(f"onnx:{write_graph(tmp_path / 'net.onnx', output='mean channels_last')}")
    maps = load_engine(backbone, engine="openvino")(frames).astype(np.float32)
    np.testing.assert_allclose(maps, wanted(frames), atol=0.01)


def test_pytorch_does_not_run_an_onnx_file(tmp_path: Path) -> None:
    backbone = find_backbone(f"onnx:{write_graph(tmp_path / 'net.onnx')}")
    with pytest.raises(UsageError, match="is an ONNX file, which PyTorch does not run. Use --engine onnx"):
        load_engine(backbone, engine="torch")


@pytest.mark.parametrize("place", ["../secret", "/etc/passwd", "link/secret", ""])
def test_tensors_outside_the_folder_are_not_read(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(10**6))
    (folder / "link").symlink_to(tmp_path)
    model = onnx.load(write_graph(folder / "net.onnx"))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=place)
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UsageError, match="outside its own folder, which is not read"):
        find_backbone(f"onnx:{folder / 'net.onnx'}")


def test_tensors_beside_the_file_are_read_and_are_part_of_its_digest(tmp_path: Path, frames: Pixels) -> None:
    path = write_graph(tmp_path / "net.onnx", output="mean maps")
    options = {"save_as_external_data": True, "location": "net.data", "size_threshold": 0}
    onnx.save(onnx.load(path), path, **options)  # type: ignore[arg-type]
    backbone = find_backbone(f"onnx:{path}")
    np.testing.assert_allclose(maps_of(backbone, frames), wanted(frames), atol=0.01)
    weights = bytearray((tmp_path / "net.data").read_bytes())
    weights[0] ^= 1
    (tmp_path / "net.data").write_bytes(weights)
    assert find_backbone(f"onnx:{path}").digest != backbone.digest


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"sise": 224}, "unknown key 'sise'. Did you mean 'size'?"),
        ({"size": 64}, 'takes pictures of 56 pixels a side, and net.onnx.json says "size": 64'),
        ({"size": "224"}, "\"size\" is '224'. It must be a whole number"),
        ({"std": [1, 0, 1]}, "All values must be above 0"),
        ({"mean": [1, 2]}, "It must be a number, or three"),
        ({"layout": "tokens"}, 'says "layout": "tokens". Correct that'),
        ({"layout": "CHWN"}, "It can be: NHWC, NCHW, tokens, vector"),
        ({"output": "mapz"}, "there is no output or layer 'mapz'. Did you mean 'maps'?"),
        ({"pool": 9}, '"pool" is 9, and the map has 7×7 cells'),
        (["size"], "not a JSON object"),
    ],
)
def test_what_is_wrong_with_the_json_is_said(tmp_path: Path, said: object, message: str) -> None:
    path = write_graph(tmp_path / "net.onnx")
    (tmp_path / "net.onnx.json").write_text(json.dumps(said))
    with pytest.raises(UsageError, match=re.escape(message)):
        find_backbone(f"onnx:{path}")


def test_what_is_no_network_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("no graph at all")
    for name, message in (("text.onnx", "not an ONNX file"), ("gone.onnx", "there is no such file")):
        with pytest.raises(UsageError, match=message):
            find_backbone(f"onnx:{tmp_path / name}")
    with pytest.raises(UsageError, match="Did you mean 'onnx:net.onnx'"):
        find_backbone("net.onnx")


def test_a_network_that_moved_is_found_by_its_weights_or_named_with_what_brings_it(tmp_path: Path) -> None:
    path = write_graph(tmp_path / "net.onnx")
    recipe = as_a_run_has_it(find_backbone(f"onnx:{path}"))
    moved = path.rename(tmp_path / "moved.onnx")
    remedy = rf"last at {re.escape(str(path))}. Name them: --weights FILE, .*: ctsan backbone check FILE"
    with pytest.raises(UsageError, match=remedy):
        backbone_of(recipe)
    other = write_graph(tmp_path / "other.onnx", output="tokens")
    with pytest.raises(UsageError, match="not the weights that the model's features were made with"):
        backbone_of(recipe, other)
    assert backbone_of(recipe, moved).weights == moved
    assert backbone_of(recipe).weights == moved  # it was shown once
    shutil.rmtree(cache_folder())
    with pytest.raises(UsageError, match="are not found. Name them"):
        backbone_of(recipe)
    assert find_backbone(f"onnx:{moved}").digest == recipe.details["weights"]
    assert backbone_of(recipe).weights == moved


def test_weights_for_one_run_leave_the_others_theirs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_graph(tmp_path / "net.onnx")
    carried = as_a_run_has_it(find_backbone("efficientnet-lite0"))
    assert backbone_of(carried, path).digest == carried.details["weights"]
    assert f"{path}: not used for efficientnet-lite0" in caplog.text
    with pytest.raises(UsageError, match="gone.onnx: there is no such file"):
        backbone_of(carried, tmp_path / "gone.onnx")


def test_a_digest_in_a_run_is_no_path(tmp_path: Path) -> None:
    recipe = as_a_run_has_it(find_backbone(f"onnx:{write_graph(tmp_path / 'net.onnx')}"))
    (cache_folder() / "here.json").write_text(json.dumps({"path": str(tmp_path / "net.onnx")}))
    harmful = Recipe(**{**asdict(recipe), "details": {**recipe.details, "weights": "../here"}})
    with pytest.raises(UsageError, match="are not found. Name them"):
        backbone_of(harmful)


@pytest.mark.skipif(TINY_VIT is None, reason="CTSAN_TINY_VIT names no file")
def test_tiny_vit_is_understood() -> None:
    backbone = find_backbone(f"onnx:{TINY_VIT}")
    assert (backbone.image_size, backbone.spec.map_size, backbone.channels) == (224, (7, 7), 320)
    frames = np.random.default_rng(0).integers(0, 256, (3, 224, 224, 3), dtype=np.uint8)
    maps = maps_of(backbone, frames)
    assert maps.shape == (3, 4, 4, 320)
    assert maps.std(axis=0).max() > 0.1  # it sees a difference
