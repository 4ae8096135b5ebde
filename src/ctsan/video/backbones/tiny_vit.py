"""TinyViT-5M (Wu et al., ECCV 2022): convolutions, then self-attention within windows.

Pretrained on ImageNet-22k by distillation from CLIP ViT-L/14. Batch normalisation is folded into the
convolutions. Height and width of the input may be any multiple of 32: if the map of a stage is not a multiple
of the pretrained window, the windows are smaller and use a part of its table of position biases.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CHANNELS = 320
_STEM = 64
# channels, blocks, heads and window of each attention stage, at 224 pixels
_STAGES = ((128, 2, 4, 7), (160, 6, 5, 14), (320, 2, 10, 7))
_CONV_BLOCKS = 2
_EXPANSION = 4


class ConvBlock(nn.Module):
    """An inverted bottleneck (MBConv): expand, depthwise convolution, project; GELU after the sum."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = _EXPANSION * channels
        self.conv1 = nn.Conv2d(channels, inner, 1)
        self.conv2 = nn.Conv2d(inner, inner, 3, padding=1, groups=inner)
        self.conv3 = nn.Conv2d(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.gelu(self.conv2(F.gelu(self.conv1(x))))
        return F.gelu(x + self.conv3(inner))


class Downsample(nn.Module):
    """Halves height and width (patch merging)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, stride=2, padding=1, groups=outputs)
        self.conv3 = nn.Conv2d(outputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        reduced: Tensor = self.conv3(F.gelu(self.conv2(F.gelu(self.conv1(x)))))
        return reduced


class WindowAttention(nn.Module):
    """Multi-head self-attention within a window, with a learnt bias for each (|Δrow|, |Δcolumn|)."""

    def __init__(self, channels: int, *, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.norm = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)
        self.attention_biases = nn.Parameter(torch.zeros(heads, window * window))

    def biases(self, size: int) -> Tensor:
        """(heads, size², size²), for windows of at most the pretrained size."""
        position = torch.arange(size)
        distance = (position[:, None] - position).abs()  # (size, size)
        rows, columns = distance[:, None, :, None], distance[None, :, None, :]
        table = self.attention_biases.view(-1, self.window, self.window)
        return table[:, rows, columns].flatten(3).flatten(1, 2)

    def forward(self, x: Tensor, size: int) -> Tensor:
        """(windows, size², C) -> (windows, size², C)."""
        windows, cells, channels = x.shape
        parts = self.qkv(self.norm(x)).view(windows, cells, self.heads, -1)
        query, key, value = parts.transpose(1, 2).chunk(3, dim=3)  # (windows, heads, cells, C / heads)
        scores = (query * query.shape[3] ** -0.5) @ key.mT + self.biases(size)
        mixed: Tensor = self.proj(
            (scores.softmax(dim=3) @ value).transpose(1, 2).reshape(windows, cells, channels)
        )
        return mixed


class Mlp(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.fc1 = nn.Linear(channels, _EXPANSION * channels)
        self.fc2 = nn.Linear(_EXPANSION * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc2(F.gelu(self.fc1(self.norm(x))))
        return out


class AttentionBlock(nn.Module):
    """Window attention, a depthwise convolution that connects windows, and an MLP."""

    def __init__(self, channels: int, *, heads: int, window: int) -> None:
        super().__init__()
        self.attn = WindowAttention(channels, heads=heads, window=window)
        self.local_conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.mlp = Mlp(channels)

    def forward(self, x: Tensor) -> Tensor:
        """(N, h, w, C) -> (N, h, w, C)."""
        count, height, width, channels = x.shape
        size = _window(self.attn.window, height, width)
        rows, columns = height // size, width // size
        windows_in = x.view(count, rows, size, columns, size, channels).transpose(2, 3)
        mixed = self.attn(windows_in.reshape(-1, size * size, channels), size)
        mixed = mixed.view(count, rows, columns, size, size, channels).transpose(2, 3).reshape(x.shape)
        local = self.local_conv((x + mixed).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        out: Tensor = local + self.mlp(local)
        return out


def _window(pretrained: int, height: int, width: int) -> int:
    """The largest window, up to the pretrained size, that divides a map."""
    return next(size for size in range(pretrained, 0, -1) if height % size == 0 and width % size == 0)


class TinyViT(nn.Module):
    """Normalised (N, 3, H, W) -> (N, 320, H / 32, W / 32)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.ModuleList(
            [
                nn.Conv2d(3, _STEM // 2, 3, stride=2, padding=1),
                nn.Conv2d(_STEM // 2, _STEM, 3, stride=2, padding=1),
            ]
        )
        self.conv_blocks = nn.Sequential(*(ConvBlock(_STEM) for _ in range(_CONV_BLOCKS)))
        self.downsamples, self.stages = nn.ModuleList(), nn.ModuleList()
        inputs = _STEM
        for channels, blocks, heads, window in _STAGES:
            self.downsamples.append(Downsample(inputs, channels))
            self.stages.append(
                nn.Sequential(*(AttentionBlock(channels, heads=heads, window=window) for _ in range(blocks)))
            )
            inputs = channels

    def before_last_stage(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, 160, H / 16, W / 16)."""
        x = self.conv_blocks(self.stem[1](F.gelu(self.stem[0](x))))
        for downsample, stage in zip(self.downsamples[:-1], self.stages[:-1], strict=True):
            x = stage(downsample(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x

    def forward(self, x: Tensor) -> Tensor:
        x = self.downsamples[-1](self.before_last_stage(x)).permute(0, 2, 3, 1)
        maps: Tensor = self.stages[-1](x).permute(0, 3, 1, 2)
        return maps


def tiny_vit(state: Mapping[str, Tensor]) -> TinyViT:
    network = TinyViT()
    network.load_state_dict({name: weights.float() for name, weights in state.items()})
    return network.eval()
