"""Small ONNX networks, written as people export theirs."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper, save
from torch import Tensor, nn

SIZE = 56
CHANNELS = 6


class Grid(nn.Module):
    """(N, 3, 56, 56) -> (N, 6, 7, 7)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 8, stride=8)

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.conv(x)
        return maps


class Vector(Grid):
    """(N, 3, 56, 56) -> (N, 6)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).mean(dim=(2, 3))


def seeded(kind: type[Grid]) -> Grid:
    torch.manual_seed(0)
    return kind().eval()


def export(network: nn.Module, path: Path) -> Path:
    """With PyTorch's own exporter, for any number of frames."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (torch.zeros(2, 3, SIZE, SIZE),),
            path,
            dynamo=True,
            external_data=False,
            dynamic_shapes={"x": {0: torch.export.Dim("N")}},
            verbose=False,
        )
    return path


def write_graph(
    path: Path,
    *,
    output: str = "maps",
    batch: int | str = "N",
    size: int | str = SIZE,
    kind: int = TensorProto.FLOAT,
    prefix: int = 0,
) -> Path:
    """The grid network with other inputs and outputs: maps (NCHW), channels_last, tokens, or two of them.

    `kind` UINT8 takes (N, size, size, 3).
    """
    weight, bias = (value.detach().numpy() for value in seeded(Grid).conv.parameters())
    nodes = []
    tensors = [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(bias, "bias")]
    shape: list[str | int] = [batch, 3, size, size]
    pixels = "input"
    if kind == TensorProto.UINT8:
        shape = [batch, size, size, 3]
        nodes.append(helper.make_node("Cast", ["input"], ["floats"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Transpose", ["floats"], ["pixels"], perm=[0, 3, 1, 2]))
        pixels = "pixels"
    nodes.append(helper.make_node("Conv", [pixels, "weight", "bias"], ["maps"], strides=[8, 8]))
    nodes.append(helper.make_node("Transpose", ["maps"], ["channels_last"], perm=[0, 2, 3, 1]))
    tensors.append(numpy_helper.from_array(np.array([0, -1, CHANNELS]), "shape"))
    nodes.append(helper.make_node("Reshape", ["channels_last", "shape"], ["patches"]))
    nodes.append(helper.make_node("ReduceMean", ["patches"], ["mean"], axes=[1], keepdims=1))
    nodes.append(helper.make_node("Concat", [*["mean"] * prefix, "patches"], ["tokens"], axis=1))
    ranks = {"maps": 4, "channels_last": 4, "tokens": 3, "mean": 3}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("input", kind, shape)],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * ranks[name])
            for name in output.split()
        ],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    save(model, path)
    return path
