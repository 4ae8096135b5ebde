"""A custom backbone from an ONNX file: its input and output are detected from the graph and by a test run.

An optional FILE.json beside FILE overrides what is detected:

    {"size": 224, "scale": 0.00392, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225],
     "input_layout": "NCHW", "output": "name of an output or of a layer", "layout": "tokens",
     "prefix_tokens": 1, "pool": 2}
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np

from ctsan.errors import UsageError, did_you_mean
from ctsan.io.reading import DamagedFileError, read_json_object
from ctsan.video.backbones.onnx_model import keep_output, model_up_to, network_files, read_model
from ctsan.video.backbones.preprocessing import Array
from ctsan.video.backbones.registry import IMAGENET_MEAN, IMAGENET_STD
from ctsan.video.backbones.spec import (
    Backbone,
    BackboneSpec,
    Colour,
    GraphSpec,
    InputLayout,
    InputType,
    OutputLayout,
)
from ctsan.video.backbones.weights import files_digest

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

DEFAULT_SIZE = 224
MAX_SIZE = 1024
GRID = 4  # the most cells per side of the pooled maps, unless "pool" is set
PREFIX_TOKENS = (
    0,
    1,
    5,
    2,
)  # none; a class token; class and four register tokens; class and distillation tokens
TEST_FRAMES = 2  # with one frame, the batch axis would be ambiguous

_KEYS = ("size", "scale", "mean", "std", "input_layout", "output", "layout", "prefix_tokens", "pool")


@dataclass(frozen=True, slots=True)
class _Input:
    name: str
    layout: InputLayout
    type: InputType
    size: int
    batch: int | None


def onnx_backbone(path: Path) -> Backbone:
    """The backbone of an ONNX file, by its graph, FILE.json and its output for two grey frames.

    Raises:
        UsageError: it is not an ONNX file, or does not map an image to a map, tokens or a vector.
    """
    model = read_model(path)
    options = _read_options(path.with_name(f"{path.name}.json"))
    assumed: list[str] = []
    network_input = _input_of(path, model, options, assumed)
    mean, std = _normalisation(path, network_input, options, assumed)
    output_name = _output_name(path, model, options, assumed)
    test_output = _test_run(path, network_input, output_name)
    layout, prefix, map_size, channels = _output_format(path, output_name, test_output, options, assumed)
    pool = _pool(path, map_size, options, assumed)
    spec = BackboneSpec(
        name=f"onnx:{path.name}",
        image_size=network_input.size,
        map_size=map_size,
        channels=channels,
        mean=mean,
        std=std,
        pool=pool,
        weights=str(path),
        graph=GraphSpec(
            input=network_input.name,
            input_layout=network_input.layout,
            input_type=network_input.type,
            batch=network_input.batch,
            output=output_name,
            output_layout=layout,
            prefix_tokens=prefix,
        ),
    )
    return Backbone(spec, path, files_digest(network_files(path)), tuple(assumed))


def _read_options(path: Path) -> Mapping[str, Any]:
    """The content of FILE.json; empty if there is none.

    Raises:
        UsageError: the file is damaged, or has an unknown key or an invalid value.
    """
    if not os.path.lexists(path):
        return {}
    try:
        options = read_json_object(path)
    except DamagedFileError as error:
        raise UsageError(
            f'{path}: not a JSON object ({error}). Write one such as {{"size": 224}}.'
        ) from error
    for key in options:
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS)
            raise UsageError(f"{path}: unknown key '{key}'. {hint}There are: {', '.join(_KEYS)}.")
    for key, choices in (("input_layout", get_args(InputLayout)), ("layout", get_args(OutputLayout))):
        if key in options and options[key] not in choices:
            raise UsageError(f'{path}: "{key}" is {options[key]!r}. It can be: {", ".join(choices)}.')
    for key, least, most in (("size", 8, MAX_SIZE), ("prefix_tokens", 0, 1000), ("pool", 1, 1000)):
        if key in options and not (type(options[key]) is int and least <= options[key] <= most):
            raise UsageError(
                f'{path}: "{key}" is {options[key]!r}. It must be a whole number from {least} to {most:,}.'
            )
    if "output" in options and not isinstance(options["output"], str):
        raise UsageError(f'{path}: "output" is {options["output"]!r}. It must be the name of an output.')
    return options


def _input_of(path: Path, model: ModelProto, options: Mapping[str, Any], assumed: list[str]) -> _Input:
    initializers = {tensor.name for tensor in model.graph.initializer}  # old files list weights as inputs too
    inputs = [info for info in model.graph.input if info.name not in initializers]
    if len(inputs) != 1:
        names = ", ".join(info.name for info in inputs) or "none"
        raise UsageError(
            f"{path}: {len(inputs)} inputs ({names}), and one is needed, for pictures. Export only the image "
            "encoder."
        )
    [info] = inputs
    shape = _shape(info)
    if len(shape) != 4:
        raise UsageError(
            f"{path}: its input '{info.name}' is {_by(shape)}, and pictures are (N, 3, size, size) or "
            "(N, size, size, 3). Export it with such an input."
        )
    batch, *_ = shape
    layout: InputLayout
    if "input_layout" in options:
        layout = options["input_layout"]
    elif shape[1] == 3:
        layout = "NCHW"
    elif shape[3] == 3:
        layout = "NHWC"
    else:
        layout = "NCHW"
        assumed.append('input (N, 3, size, size): its axes have no sizes ("input_layout")')
    height, width = shape[2:] if layout == "NCHW" else shape[1:3]
    if height and width and height != width:
        raise UsageError(
            f"{path}: takes pictures of {width}×{height}, and frames are squashed to a square. Export it "
            "with a square input."
        )
    fixed_size = height or width
    if fixed_size and options.get("size", fixed_size) != fixed_size:
        raise UsageError(
            f'{path}: takes pictures of {fixed_size} pixels a side, and {path.name}.json says "size": '
            f"{options['size']}. Correct one of the two."
        )
    size = fixed_size or options.get("size")
    if size is None:
        size = DEFAULT_SIZE
        assumed.append(f'{size} pixels a side: it takes pictures of any size ("size")')
    return _Input(info.name, layout, _type_of(path, info), int(size), batch)


def _type_of(path: Path, info: ValueInfoProto) -> InputType:
    from onnx import TensorProto

    name = TensorProto.DataType.Name(info.type.tensor_type.elem_type).lower()
    names = {"float": "float32", "float16": "float16", "uint8": "uint8"}
    if name not in names:
        raise UsageError(
            f"{path}: takes pictures of {name}, and ctsan gives float, float16 or uint8. Export it with one "
            "of these."
        )
    return cast("InputType", names[name])


def _normalisation(
    path: Path, network_input: _Input, options: Mapping[str, Any], assumed: list[str]
) -> tuple[Colour, Colour]:
    """Mean and std for pixels from 0 to 255; those of FILE.json are for pixel * scale."""
    if network_input.type == "uint8":
        if unused := [key for key in ("scale", "mean", "std") if key in options]:
            raise UsageError(
                f'{path}: takes bytes, which are not normalised, and {path.name}.json says "{unused[0]}". '
                "Remove it."
            )
        return (0.0,) * 3, (1.0,) * 3
    if not any(key in options for key in ("scale", "mean", "std")):
        assumed.append('RGB / 255 with the mean and std of ImageNet ("scale", "mean", "std")')
        return IMAGENET_MEAN, IMAGENET_STD
    scale = options.get("scale", 1 / 255)
    if not _is_number(scale) or scale <= 0:
        raise UsageError(f'{path}.json: "scale" is {scale!r}. It must be a number above 0, such as 0.00392.')
    mean, std = (
        _colour(path, key, options.get(key, default)) for key, default in (("mean", 0.0), ("std", 1.0))
    )
    if min(std) <= 0:
        raise UsageError(f'{path}.json: "std" is {options["std"]}. All values must be above 0.')
    red, green, blue = (value / scale for value in mean)
    stds = [value / scale for value in std]
    return (red, green, blue), (stds[0], stds[1], stds[2])


def _colour(path: Path, key: str, value: Any) -> Colour:
    values = [value] * 3 if _is_number(value) else value
    if not isinstance(values, list) or len(values) != 3 or not all(map(_is_number, values)):
        raise UsageError(
            f'{path}.json: "{key}" is {value!r}. It must be a number, or three: red, green, blue.'
        )
    red, green, blue = map(float, values)
    return red, green, blue


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _output_name(path: Path, model: ModelProto, options: Mapping[str, Any], assumed: list[str]) -> str:
    if "output" in options:
        keep_output(path, model, options["output"])  # raises if it does not exist
        return str(options["output"])
    outputs = list(model.graph.output)
    if len(outputs) == 1:
        return str(outputs[0].name)
    # Prefer maps (rank 4) to tokens (3), and tokens to vectors (2).
    best = max(outputs, key=lambda info: len(_shape(info)) if len(_shape(info)) in (2, 3, 4) else 0)
    names = ", ".join(f"'{info.name}' {_by(_shape(info))}" for info in outputs)
    assumed.append(f"output '{best.name}' of {names} (\"output\")")
    return str(best.name)


def _test_run(path: Path, network_input: _Input, output_name: str) -> Array:
    """The network's output for grey frames.

    Raises:
        UsageError: the network cannot be run, or its output has no usable shape or type.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read at import: nothing is sent anywhere
    import onnxruntime

    session_options = onnxruntime.SessionOptions()
    session_options.log_severity_level = 4  # errors are raised, so do not log them too
    count, size = network_input.batch or TEST_FRAMES, network_input.size
    shape = (3, size, size) if network_input.layout == "NCHW" else (size, size, 3)
    try:
        session = onnxruntime.InferenceSession(
            model_up_to(path, output_name), session_options, providers=["CPUExecutionProvider"]
        )
        grey_frames = np.zeros((count, *shape), dtype=network_input.type)
        output: Array = session.run([output_name], {network_input.name: grey_frames})[0]
    except UsageError:
        raise
    except Exception as error:  # ONNX Runtime has its own class for every kind of error
        raise UsageError(
            f"{path}: ONNX Runtime cannot run it on {count} pictures of {size} pixels a side "
            f"({str(error).splitlines()[0]}). Export it again, or correct {path.name}.json."
        ) from error
    if output.dtype.kind != "f" or output.ndim not in (2, 3, 4) or len(output) != count or 0 in output.shape:
        raise UsageError(
            f"{path}: its output '{output_name}' is {_by(output.shape)} of {output.dtype} for {count} "
            "pictures. Maps, tokens or vectors of floats are needed: name such an output or layer as "
            f'"output" in {path.name}.json.'
        )
    return output


def _output_format(
    path: Path, output_name: str, test_output: Array, options: Mapping[str, Any], assumed: list[str]
) -> tuple[OutputLayout, int, tuple[int, int], int]:
    """Layout, number of prefix tokens, size of the map, and channels."""
    shape = test_output.shape[1:]
    layout = cast("OutputLayout | None", options.get("layout"))
    ranks = {"NHWC": 3, "NCHW": 3, "tokens": 2, "vector": 1}
    if layout is not None and len(shape) != ranks[layout]:
        raise UsageError(
            f"{path}: its output '{output_name}' is {_by(test_output.shape)}, and {path.name}.json says "
            f'"layout": "{layout}". Correct that.'
        )
    match shape:
        case (channels,):
            return "vector", 0, (1, 1), channels
        case (tokens, channels):
            prefix, side = _patches(path, output_name, tokens, options)
            if prefix and "prefix_tokens" not in options:
                assumed.append(f'{prefix} of {tokens} tokens stand before the patches ("prefix_tokens")')
            return "tokens", prefix, (side, side), channels
        case (first, second, third):
            if layout is None and first == second != third:
                layout = "NHWC"
            elif layout is None and second == third != first:
                layout = "NCHW"
            if layout == "NHWC":
                return layout, 0, (first, second), third
            if layout == "NCHW":
                return layout, 0, (second, third), first
    raise UsageError(
        f"{path}: its output '{output_name}' is {_by(test_output.shape)}, which does not tell where its "
        f'channels are. Write "layout": "NHWC" or "NCHW" into {path.name}.json.'
    )


def _patches(path: Path, output_name: str, tokens: int, options: Mapping[str, Any]) -> tuple[int, int]:
    """The number of prefix tokens, and the number of patches per side."""
    choices: Sequence[int] = [options["prefix_tokens"]] if "prefix_tokens" in options else PREFIX_TOKENS
    for prefix in choices:
        side = math.isqrt(max(0, tokens - prefix))
        if side and side * side == tokens - prefix:
            return prefix, side
    raise UsageError(
        f"{path}: its output '{output_name}' has {tokens} tokens, which make no square of patches. Write how "
        f'many stand before them as "prefix_tokens" into {path.name}.json, or name another "output".'
    )


def _pool(path: Path, map_size: tuple[int, int], options: Mapping[str, Any], assumed: list[str]) -> int:
    if "pool" in options:
        if options["pool"] > max(map_size):
            raise UsageError(
                f'{path}.json: "pool" is {options["pool"]}, and the map has {_by(map_size)} cells. Give '
                "fewer."
            )
        return int(options["pool"])
    pool = -(-max(map_size) // GRID)
    if pool > 1:
        assumed.append(f'{pool}×{pool} cells are max-pooled into one, for {GRID}×{GRID} at most ("pool")')
    return pool


def _shape(info: ValueInfoProto) -> list[int | None]:
    return [dimension.dim_value or None for dimension in info.type.tensor_type.shape.dim]


def _by(shape: Sequence[int | None]) -> str:
    return "×".join("any" if size is None else str(size) for size in shape)
