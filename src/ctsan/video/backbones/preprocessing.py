"""The input and output of an ONNX network in NumPy: frames to its input, its output to pooled maps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ctsan.video.backbones.spec import BackboneSpec

Array = NDArray[Any]


def to_input(frames: NDArray[np.uint8], spec: BackboneSpec) -> Array:
    """Frames (N, size, size, 3), uint8, normalised and in the layout and type of the network's input."""
    graph = spec.graph
    assert graph is not None
    pixels: Array = frames
    if graph.input_type != "uint8":
        mean, std = np.array(spec.mean, np.float32), np.array(spec.std, np.float32)
        pixels = ((frames - mean) / std).astype(graph.input_type, copy=False)
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)) if graph.input_layout == "NCHW" else pixels


def to_maps(output: Array, spec: BackboneSpec) -> NDArray[np.float32]:
    """The network's output as pooled maps (N, h, w, C)."""
    graph = spec.graph
    assert graph is not None
    if graph.output_layout == "NCHW":
        output = output.transpose(0, 2, 3, 1)
    elif graph.output_layout != "NHWC":
        tokens = output[:, graph.prefix_tokens :] if graph.output_layout == "tokens" else output
        output = tokens.reshape(len(output), *spec.map_size, spec.channels)
    return max_pool(output, spec.pool).astype(np.float32, copy=False)


def max_pool(maps: Array, kernel: int) -> Array:
    """Max-pool (N, h, w, C) over `kernel` x `kernel` cells; the last row and column may be narrower."""
    if kernel == 1:
        return maps
    rows = np.maximum.reduceat(maps, np.arange(0, maps.shape[1], kernel), axis=1)
    pooled: Array = np.maximum.reduceat(rows, np.arange(0, maps.shape[2], kernel), axis=2)
    return pooled
