"""TinyViT-5M as an ONNX graph, so that the bundled model needs no PyTorch: the network of `tiny_vit`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ctsan.errors import UsageError
from ctsan.io.arrays import open_tensors
from ctsan.io.onnx_graph import Array, Graph
from ctsan.io.reading import DamagedFileError
from ctsan.video.backbones.spec import BackboneSpec

# heads and pretrained window of each attention stage
_STAGES = ((4, 7), (5, 14), (10, 7))
_BLOCKS = (2, 6, 2)
_CONV_BLOCKS = 2
_EPSILON = 1e-5
_FLOAT32, _FLOAT16 = 1, 10  # TensorProto.DataType


def tiny_vit_graph(weights: Path, spec: BackboneSpec) -> Graph:
    """Frames (N, size, size, 3), uint8, to maps (N, h, w, C), float16.

    Raises:
        UsageError: the weights file is damaged or belongs to another network.
    """
    state = _read(weights)
    graph = Graph(state)
    size = spec.image_size
    try:
        pixels = graph.op("Cast", graph.input("frames", "uint8", ["N", size, size, 3]), to=_FLOAT32)
        centred = graph.op("Sub", pixels, graph.constant(spec.mean))
        x = _transposed(graph, graph.op("Div", centred, graph.constant(spec.std)), 0, 3, 1, 2)
        x = _gelu(graph, _conv(graph, x, "stem.0", state, stride=2))
        x = _conv(graph, x, "stem.1", state, stride=2)
        for number in range(_CONV_BLOCKS):
            x = _conv_block(graph, x, f"conv_blocks.{number}", state)
        side = size // 4
        for stage, ((heads, pretrained), blocks) in enumerate(zip(_STAGES, _BLOCKS, strict=True)):
            x = _three_convs(graph, x, f"downsamples.{stage}", state, stride=2)
            side //= 2
            x = _transposed(graph, x, 0, 2, 3, 1)  # (N, h, w, C)
            for number in range(blocks):
                block = f"stages.{stage}.{number}"
                x = _attention_block(graph, x, block, state, side=side, heads=heads, pretrained=pretrained)
            if stage < len(_STAGES) - 1:
                x = _transposed(graph, x, 0, 3, 1, 2)  # (N, C, h, w)
    except KeyError as error:
        raise UsageError(
            f"{weights}: these are not the weights of {spec.name} ({error} is missing). Name the backbone "
            "that they belong to."
        ) from None
    graph.output("maps", graph.op("Cast", x, to=_FLOAT16), "float16")
    return graph


def _read(weights: Path) -> dict[str, Array]:
    try:
        with open_tensors(weights) as file:
            return {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}  # noqa: SIM118
    except DamagedFileError as error:
        raise UsageError(f"{weights}: a damaged weights file ({error}). Download it again.") from error


def _conv(graph: Graph, x: str, name: str, state: Mapping[str, Array], *, stride: int = 1) -> str:
    """A convolution; one with a single input channel per filter is depthwise."""
    weight = state[f"{name}.weight"]
    filters, inputs, kernel, _ = weight.shape
    return graph.op(
        "Conv",
        x,
        graph.weight(f"{name}.weight"),
        graph.weight(f"{name}.bias"),
        group=filters if inputs == 1 else 1,
        pads=(kernel // 2,) * 4,
        strides=(stride, stride),
    )


def _three_convs(graph: Graph, x: str, name: str, state: Mapping[str, Array], *, stride: int = 1) -> str:
    x = _gelu(graph, _conv(graph, x, f"{name}.conv1", state))
    x = _gelu(graph, _conv(graph, x, f"{name}.conv2", state, stride=stride))
    return _conv(graph, x, f"{name}.conv3", state)


def _conv_block(graph: Graph, x: str, name: str, state: Mapping[str, Array]) -> str:
    return _gelu(graph, graph.op("Add", x, _three_convs(graph, x, name, state)))


def _attention_block(
    graph: Graph,
    x: str,
    name: str,
    state: Mapping[str, Array],
    *,
    side: int,
    heads: int,
    pretrained: int,
) -> str:
    """Window attention, a depthwise convolution and an MLP, (N, h, w, C) -> (N, h, w, C)."""
    channels = len(state[f"{name}.attn.norm.weight"])
    size = next(size for size in range(pretrained, 0, -1) if side % size == 0)
    count = side // size  # windows along each side
    windows = _reshaped(graph, x, -1, count, size, count, size, channels)
    windows = _reshaped(graph, _transposed(graph, windows, 0, 1, 3, 2, 4, 5), -1, size**2, channels)
    mixed = _window_attention(graph, windows, f"{name}.attn", state, size=size, heads=heads, table=pretrained)
    mixed = _reshaped(graph, mixed, -1, count, count, size, size, channels)
    mixed = _reshaped(graph, _transposed(graph, mixed, 0, 1, 3, 2, 4, 5), -1, side, side, channels)
    summed = _transposed(graph, graph.op("Add", x, mixed), 0, 3, 1, 2)
    local = _transposed(graph, _conv(graph, summed, f"{name}.local_conv", state), 0, 2, 3, 1)
    inner = _gelu(graph, _linear(graph, _norm(graph, local, f"{name}.mlp.norm"), f"{name}.mlp.fc1"))
    return graph.op("Add", local, _linear(graph, inner, f"{name}.mlp.fc2"))


def _window_attention(
    graph: Graph, x: str, name: str, state: Mapping[str, Array], *, size: int, heads: int, table: int
) -> str:
    """(windows, size², C) -> (windows, size², C), with a bias for each (|Δrow|, |Δcolumn|)."""
    cells, channels = size**2, len(state[f"{name}.norm.weight"])
    head_dim = channels // heads
    parts = _linear(graph, _norm(graph, x, f"{name}.norm"), f"{name}.qkv")
    parts = _transposed(graph, _reshaped(graph, parts, -1, cells, heads, 3 * head_dim), 0, 2, 1, 3)
    query, key, value = graph.ops("Split", parts, outputs=3, axis=-1, num_outputs=3)
    scaled = graph.op("Mul", query, graph.constant(head_dim**-0.5))
    scores = graph.op("MatMul", scaled, _transposed(graph, key, 0, 1, 3, 2))
    distance = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    biases = state[f"{name}.attention_biases"].reshape(heads, table, table)
    by_cells = biases[:, distance[:, None, :, None], distance[None, :, None, :]].reshape(heads, cells, cells)
    scores = graph.op("Add", scores, graph.add_weight(f"{name}.biases", by_cells))
    mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
    mixed = _reshaped(graph, _transposed(graph, mixed, 0, 2, 1, 3), -1, cells, channels)
    return _linear(graph, mixed, f"{name}.proj")


def _linear(graph: Graph, x: str, name: str) -> str:
    product = graph.op("MatMul", x, graph.transposed_weight(f"{name}.weight"))
    return graph.op("Add", product, graph.weight(f"{name}.bias"))


def _norm(graph: Graph, x: str, name: str) -> str:
    gain, bias = graph.weight(f"{name}.weight"), graph.weight(f"{name}.bias")
    return graph.op("LayerNormalization", x, gain, bias, axis=-1, epsilon=_EPSILON)


def _gelu(graph: Graph, x: str) -> str:
    return graph.op("Gelu", x)


def _transposed(graph: Graph, x: str, *axes: int) -> str:
    return graph.op("Transpose", x, perm=axes)


def _reshaped(graph: Graph, x: str, *shape: int) -> str:
    return graph.op("Reshape", x, graph.ints(*shape))
