"""What ctsan knows of a network (after timm's `_cfg`), and of a network with its weights."""

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

Colour = tuple[float, float, float]  # red, green, blue, for pixels from 0 to 255

InputLayout = Literal["NCHW", "NHWC"]
InputType = Literal["float32", "float16", "uint8"]
OutputLayout = Literal["NHWC", "NCHW", "tokens", "vector"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSpec:
    """How pictures go into an ONNX file, and where its maps come out."""

    input: str
    input_layout: InputLayout = "NCHW"
    input_type: InputType = "float32"
    batch: int | None = None  # frames that it takes at once; None: any number
    output: str
    output_layout: OutputLayout = "NHWC"  # tokens are (N, T, C), a vector (N, C)
    prefix_tokens: int = 0  # class and register tokens before those of the patches


@dataclass(frozen=True, slots=True, kw_only=True)
class BackboneSpec:
    """One network. Frames are squashed to `image_size` pixels a side; the input is (pixel - mean) / std."""

    name: str
    image_size: int
    map_size: tuple[int, int]  # cells of the map that the network gives
    channels: int
    mean: Colour
    std: Colour
    pool: int = 2  # so many cells a side are max-pooled into one, of which the last may be narrower; 1: none
    packaged: Callable[[], Path] | None = None  # weights that come with ctsan; without, a file must be given
    weights: str = "--weights FILE"  # where they come from, for people
    load: Callable[[Path], nn.Module] | None = None  # weights -> (N, 3, size, size) to (N, C, h, w)
    graph: GraphSpec | None = None  # instead of `load`: the weights are an ONNX file

    @property
    def grid(self) -> tuple[int, int]:
        height, width = self.map_size
        return -(-height // self.pool), -(-width // self.pool)

    @property
    def cell_borders(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Where the rows and columns of the grid begin and end in a frame, from 0 to 1.

        Frames are squashed whole, so that cells cover all of the picture.
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
    weights: Path  # a file; for hf: a folder
    digest: str  # sha256 of the weights
    assumed: tuple[str, ...] = field(default=(), compare=False)  # what nobody said of a user's network

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
    def is_users_own(self) -> bool:
        return self.name.startswith(("onnx:", "hf:"))

    def details(self) -> dict[str, object]:
        """What a recipe of features says of the network; of a user's own, all that rebuilds its record."""
        spec = self.spec
        found: dict[str, object] = {
            "weights": self.digest,
            "image_size": spec.image_size,
            "resize": "squash, bicubic",
            "mean": spec.mean,
            "std": spec.std,
            "pooling": f"{spec.pool}x{spec.pool} max, odd row kept" if spec.pool > 1 else "none",
        }
        if self.is_users_own:
            graph = asdict(spec.graph) if spec.graph else None
            found["network"] = {"map_size": spec.map_size, "pool": spec.pool, "graph": graph}
        return found

    @property
    def key(self) -> str:
        """A file name that only this network has."""
        if not self.is_users_own:
            return f"{self.name}-{self.digest[:16]}"
        told = json.dumps([self.channels, self.details()], sort_keys=True)
        name = re.sub(r"[^\w.-]+", "-", self.name)
        return f"{name}-{hashlib.sha256(told.encode()).hexdigest()[:16]}"

    @property
    def folder_name(self) -> str:
        """What the folder of its features is called in the cache."""
        return self.key if self.is_users_own else self.name
