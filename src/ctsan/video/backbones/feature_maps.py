"""A PyTorch network with its preprocessing and pooling."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.errors import UsageError
from ctsan.video.backbones.spec import Backbone


def load_trunk(backbone: Backbone) -> nn.Module:
    """The network up to its last map (N, C, h, w).

    Raises:
        UsageError: the weights file is damaged or belongs to another network.
    """
    assert backbone.spec.load is not None  # other engines run ONNX files
    try:
        return backbone.spec.load(backbone.weights)
    except RuntimeError as error:
        first_line = str(error).splitlines()[0]
        raise UsageError(
            f"{backbone.weights}: these are not the weights of {backbone.name} ({first_line.strip()}). "
            "Name the backbone that they belong to, in torchvision's key format for a ResNet."
        ) from error


class FeatureMaps(nn.Module):
    """From frames (N, size, size, 3), uint8, to maps (N, h, w, C): the module that engines run."""

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone, *, half: bool = True) -> None:
        super().__init__()
        self.trunk = load_trunk(backbone)
        self.register_buffer("mean", torch.tensor(backbone.mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(backbone.std).view(3, 1, 1))
        self.pool, self.half_precision = backbone.spec.pool, half
        self.eval()

    def forward(self, frames: Tensor) -> Tensor:
        x = (frames.permute(0, 3, 1, 2).float() - self.mean) / self.std  # (N, 3, size, size)
        x = self.trunk(x)  # (N, C, map)
        if self.pool > 1:
            x = F.max_pool2d(x, self.pool, ceil_mode=True)  # (N, C, h, w)
        maps = x.permute(0, 2, 3, 1)  # (N, h, w, C)
        return maps.half() if self.half_precision else maps
