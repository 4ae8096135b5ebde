"""TinyViT: its attention against NumPy, its maps the right way up, its weights those of the original."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from skimage import data
from skimage.transform import resize

from ctsan.errors import UsageError
from ctsan.video.backbones import BACKBONES, DEFAULT_BACKBONE, find_backbone
from ctsan.video.backbones.tiny_vit import WindowAttention, tiny_vit
from ctsan.video.backbones.tiny_vit_graph import tiny_vit_graph
from ctsan.video.backbones.weights import read_state
from ctsan.video.engine import ENGINES, TOLERANCE, Pixels, load_engine

NAME = "tiny-vit-5m"
_ORIGINAL = os.environ.get("CTSAN_TINY_VIT")  # tiny_vit_5m_224_in22k_patch.onnx, where it is there


def photograph(name: str) -> Pixels:
    """A photograph in the public domain, squashed to the size that the network takes."""
    size = BACKBONES[NAME].image_size
    photo = getattr(data, name)()
    squashed: Pixels = resize(photo, (size, size), preserve_range=True, anti_aliasing=True)  # type: ignore[no-untyped-call]  # of skimage
    return squashed.round().astype(np.uint8)


def test_it_is_the_default_and_small_enough_to_carry() -> None:
    assert DEFAULT_BACKBONE == NAME
    assert find_backbone(NAME).weights.stat().st_size <= 12_000_000


def test_its_graph_is_the_network_of_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written without PyTorch, for any number of frames. `load_engine` runs it from the cache."""
    monkeypatch.setenv("CTSAN_CACHE", str(tmp_path))
    backbone, frames = find_backbone(NAME), np.stack([photograph("astronaut"), photograph("coffee")])
    maps = [load_engine(backbone, engine=engine)(frames) for engine in ENGINES[::2]]  # and OpenVINO between
    assert maps[0].dtype == maps[1].dtype == np.float16
    np.testing.assert_allclose(maps[0], maps[1], rtol=0, atol=TOLERANCE)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    save_file({"stem.0.weight": np.zeros((32, 3, 3, 3), np.float16)}, file)
    with pytest.raises(UsageError, match="not the weights of tiny-vit-5m .'stem.0.bias' is missing"):
        tiny_vit_graph(file, BACKBONES[NAME])
    file.write_bytes(b"something else")
    with pytest.raises(UsageError, match="a damaged weights file"):
        tiny_vit_graph(file, BACKBONES[NAME])


@pytest.mark.parametrize("size", [3, 4])  # the window that was learnt is 4
def test_attention_is_that_of_the_paper(size: int) -> None:
    heads, channels, window, cells = 2, 6, 4, size * size
    random = np.random.default_rng(0)
    attention = WindowAttention(channels, heads=heads, window=window)
    for parameter in attention.parameters():
        parameter.data.copy_(torch.from_numpy(random.normal(size=tuple(parameter.shape))))
    x = random.normal(size=(5, cells, channels)).astype(np.float32)
    given = {name: values.detach().numpy() for name, values in attention.named_parameters()}

    normal = (x - x.mean(axis=2, keepdims=True)) / np.sqrt(x.var(axis=2, keepdims=True) + 1e-5)
    normal = normal * given["norm.weight"] + given["norm.bias"]
    projected = normal @ given["qkv.weight"].T + given["qkv.bias"]
    depth = channels // heads
    wanted = np.zeros_like(x)
    for head in range(heads):
        query, key, value = (
            projected[..., (3 * head + part) * depth : (3 * head + part + 1) * depth] for part in range(3)
        )
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(depth)
        for i in range(cells):
            for j in range(cells):
                row, column = abs(i // size - j // size), abs(i % size - j % size)
                scores[:, i, j] += given["attention_biases"][head, row * window + column]
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        wanted[..., head * depth : (head + 1) * depth] = weights / weights.sum(axis=2, keepdims=True) @ value
    wanted = wanted @ given["proj.weight"].T + given["proj.bias"]
    with torch.inference_mode():
        np.testing.assert_allclose(attention(torch.from_numpy(x), size).numpy(), wanted, atol=1e-4)


def test_engines_agree_and_a_frame_does_not_depend_on_its_batch() -> None:
    frames = np.stack([photograph(name) for name in ("chelsea", "coffee", "rocket")] * 2)
    backbone = find_backbone(NAME)
    maps = {
        engine: load_engine(backbone, engine=engine)(frames).astype(np.float32)
        for engine in ("onnxruntime", "torch")
    }
    assert maps["torch"].shape == (6, *backbone.grid, backbone.channels)
    scale = maps["torch"].std()
    assert np.abs(maps["onnxruntime"] - maps["torch"]).max() < 0.02 * scale
    np.testing.assert_allclose(maps["onnxruntime"][:3], maps["onnxruntime"][3:], atol=0.02 * scale)


def test_cells_lie_where_the_picture_does() -> None:
    """Where a piece of pictures is taken from others, the maps change most."""
    run = load_engine(find_backbone(NAME), engine="onnxruntime")
    pictures = np.stack([photograph(name) for name in ("chelsea", "coffee", "rocket", "astronaut")])
    others = pictures[[1, 0, 1, 1]]
    maps = run(pictures).astype(np.float32)
    for row, column in np.ndindex(*BACKBONES[NAME].grid):
        piece = np.s_[:, 32 * row : 32 * row + 32, 32 * column : 32 * column + 32]
        changed = pictures.copy()
        changed[piece] = others[piece]
        change = np.abs(run(changed) - maps).sum(axis=(0, 3))
        assert np.unravel_index(change.argmax(), change.shape) == (row, column)


def test_pictures_of_a_thing_are_nearer_to_each_other_than_to_others() -> None:
    """What weights in the wrong places would not give."""
    cat, coffee = photograph("chelsea"), photograph("coffee")
    frames = np.stack([cat, cat[:, ::-1], coffee, coffee[::-1, ::-1]])
    means = load_engine(find_backbone(NAME), engine="torch")(frames).astype(np.float32).mean(axis=(1, 2))
    means -= means.mean(axis=0)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    alike = means @ means.T
    assert min(alike[0, 1], alike[2, 3]) > 0.5
    assert alike[:2, 2:].max() < 0


@pytest.mark.skipif(_ORIGINAL is None, reason="CTSAN_TINY_VIT does not name the original file")
def test_the_original_gives_the_same_maps_here_and_only_its_last_stage_was_tuned() -> None:
    import onnx
    import onnxruntime

    assert _ORIGINAL is not None
    weights = convert_tool().weights_of(onnx.load(_ORIGINAL).graph)
    pixels = np.random.default_rng(0).normal(size=(2, 3, 224, 224)).astype(np.float32)
    session = onnxruntime.InferenceSession(_ORIGINAL, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"input": pixels})[0].transpose(0, 3, 2, 1)  # its rows are our columns
    with torch.inference_mode():
        maps = tiny_vit(weights)(torch.from_numpy(pixels)).numpy()
    np.testing.assert_allclose(maps, wanted, atol=1e-3)
    carried = read_state(find_backbone(NAME).weights)
    tuned = {name for name, values in weights.items() if not carried[name].equal(values.half())}
    assert tuned
    assert all(name.startswith(("downsamples.2.", "stages.2.")) for name in tuned)


def convert_tool() -> ModuleType:
    file = Path(__file__).parents[2] / "tools" / "convert_tiny_vit.py"
    spec = importlib.util.spec_from_file_location("convert_tiny_vit", file)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool
