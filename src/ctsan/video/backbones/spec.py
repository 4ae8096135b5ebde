"""The specification of a network (after timm's `_cfg`), and of a network with its weights."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import nn

    from ctsan.io.onnx_graph import Graph

Colour = tuple[float, float, float]  # red, green and blue, for pixels from 0 to 255

InputLayout = Literal["NCHW", "NHWC"]
InputType = Literal["float32", "float16", "uint8"]
OutputLayout = Literal["NHWC", "NCHW", "tokens", "vector"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSpec:
    """The input and output of an ONNX file."""

    input: str
    input_layout: InputLayout = "NCHW"
    input_type: InputType = "float32"
    batch: int | None = None  # the fixed batch size; None if dynamic
    output: str
    output_layout: OutputLayout = "NHWC"  # tokens are (N, T, C), a vector is (N, C)
    prefix_tokens: int = 0  # class and register tokens before the patch tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class BackboneSpec:
    """One network. Frames are squashed to `image_size` x `image_size`; the input is (pixel - mean) / std."""

    name: str
    image_size: int
    map_size: tuple[int, int]  # height and width of the network's output map
    channels: int
    mean: Colour
    std: Colour
    pool: int = 2  # the kernel of the max-pool, whose last row and column may be narrower; 1 for none
    packaged: Callable[[], Path] | None = None  # the weights that come with ctsan; None if a file is needed
    weights: str = "--weights FILE"  # where the weights come from, for messages
    load: Callable[[Path], nn.Module] | None = None  # loads a module (N, 3, size, size) -> (N, C, h, w)
    build_graph: Callable[[Path, BackboneSpec], Graph] | None = None  # the ONNX graph, without PyTorch
    graph: GraphSpec | None = None  # instead of `load`, if the weights are an ONNX file

    @property
    def grid(self) -> tuple[int, int]:
        height, width = self.map_size
        return -(-height // self.pool), -(-width // self.pool)

    @property
    def cell_borders(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The borders of the rows and columns of the grid in a frame, from 0 to 1.

        Frames are squashed, not cropped, so the grid covers the whole frame.
        """
        rows, columns = (
            np.minimum(np.arange(cells + 1) * self.pool, size) / size
            for cells, size in zip(self.grid, self.map_size, strict=True)
        )
        return rows, columns


@dataclass(frozen=True, slots=True)
class Backbone:
    """A network with its weights; two with the same `details` give the same maps."""

    spec: BackboneSpec
    weights: Path  # a file, or for hf: a folder
    digest: str  # sha256 of the weights
    assumed: tuple[str, ...] = field(default=(), compare=False)  # assumptions about a custom network

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def image_size(self) -> int:
        return self.spec.image_size

    @property
    def grid(self) -> tuple[int, int]:
        return self.spec.grid

    @property
    def channels(self) -> int:
        return self.spec.channels

    @property
    def mean(self) -> Colour:
        return self.spec.mean

    @property
    def std(self) -> Colour:
        return self.spec.std

    @property
    def is_custom(self) -> bool:
        """Whether it is a network of the user, not one of `BACKBONES`."""
        return self.name.startswith(("onnx:", "hf:"))

    def details(self) -> dict[str, object]:
        """The details of a recipe of features; for a custom network, they suffice to rebuild its spec."""
        spec = self.spec
        details: dict[str, object] = {
            "weights": self.digest,
            "image_size": spec.image_size,
            "resize": "squash, bicubic",
            "mean": spec.mean,
            "std": spec.std,
            "pooling": f"{spec.pool}x{spec.pool} max, odd row kept" if spec.pool > 1 else "none",
        }
        if self.is_custom:
            graph = asdict(spec.graph) if spec.graph else None
            details["network"] = {"map_size": spec.map_size, "pool": spec.pool, "graph": graph}
        return details

    @property
    def key(self) -> str:
        """A unique file name."""
        if not self.is_custom:
            return f"{self.name}-{self.digest[:16]}"
        description = json.dumps([self.channels, self.details()], sort_keys=True)
        name = re.sub(r"[^\w.-]+", "-", self.name)
        return f"{name}-{hashlib.sha256(description.encode()).hexdigest()[:16]}"

    @property
    def folder_name(self) -> str:
        """The name of the folder of its features in the cache."""
        return self.key if self.is_custom else self.name
