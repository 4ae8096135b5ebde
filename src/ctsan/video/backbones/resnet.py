"""ResNet-50, 101 and 152 up to res5c, which gives the paper's features, and the ImageNet classifier on it.

Module names are those of torchvision, so that its weights load unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DEPTHS: dict[int, tuple[int, int, int, int]] = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
WIDTHS = (64, 128, 256, 512)
EXPANSION = 4
CHANNELS = WIDTHS[-1] * EXPANSION
NUM_CLASSES = 1000


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 and a skip connection. The original strides in the first 1x1, torchvision in the 3x3."""

    def __init__(self, inputs: int, width: int, *, stride: int, strides_first: bool) -> None:
        super().__init__()
        outputs = width * EXPANSION
        first, second = (stride, 1) if strides_first else (1, stride)
        self.conv1 = nn.Conv2d(inputs, width, 1, first, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, second, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + self.downsample(x))


class ResNet(nn.Module):
    """`forward` returns the map res5c (B, 2048, H/32, W/32), `classify` the 1000 ImageNet scores."""

    def __init__(self, blocks: tuple[int, int, int, int], *, strides_first: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for stage, (width, repeats) in enumerate(zip(WIDTHS, blocks, strict=True)):
            layers = []
            for block in range(repeats):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Bottleneck(inputs, width, stride=stride, strides_first=strides_first))
                inputs = width * EXPANSION
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(CHANNELS, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(x, 3, 2, padding=1)
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)
        return x

    def classify(self, x: Tensor) -> Tensor:
        scores: Tensor = self.fc(self(x).mean(dim=(2, 3)))
        return scores


def resnet(depth: int, state: Mapping[str, Tensor], *, strides_first: bool = False) -> ResNet:
    """ResNet of `depth` layers with weights in torchvision's key format.

    Raises:
        RuntimeError: the weights belong to another network; the message lists the keys.
    """
    with torch.device("meta"):
        model = ResNet(DEPTHS[depth], strides_first=strides_first)
    model.load_state_dict(dict(state), assign=True)
    return model.eval()
