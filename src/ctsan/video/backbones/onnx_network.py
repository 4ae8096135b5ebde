"""A user's own network as an ONNX file: what goes in and comes out is found by itself.

Beside FILE may stand FILE.json, which says what the file cannot, or says it otherwise:

    {"size": 224, "scale": 0.00392, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225],
     "input_layout": "NCHW", "output": "name of an output or of a layer", "layout": "tokens",
     "prefix_tokens": 1, "pool": 2}

An ONNX file runs no code of its own. Its tensors may lie in other files: only such below its own folder.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from ctsan.errors import UsageError, did_you_mean
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
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

DEFAULT_SIZE = 224
LARGEST_SIZE = 1024
GRID = 4  # cells a side that features have at most, unless "pool" says otherwise
PREFIX_TOKENS = (0, 1, 5, 2)  # none, a class token, that and four registers, class and distillation tokens
TRIED_FRAMES = 2  # one frame would not tell the axis of the batch

_KEYS = ("size", "scale", "mean", "std", "input_layout", "output", "layout", "prefix_tokens", "pool")

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Input:
    name: str
    layout: InputLayout
    type: InputType
    size: int
    batch: int | None


def onnx_backbone(path: Path) -> Backbone:
    """What a file is, by its graph, by FILE.json and by what it makes of two grey frames.

    Raises:
        UsageError: it is no ONNX file, or none that makes a map, tokens or a vector of one picture.
    """
    model = read_model(path)
    said = _read_options(path.with_name(f"{path.name}.json"))
    assumed: list[str] = []
    given = _input_of(path, model, said, assumed)
    mean, std = _normalisation(path, given, said, assumed)
    output = _output_of(path, model, said, assumed)
    tried = _try(path, given, output)
    layout, prefix, map_size, channels = _map_of(path, output, tried, said, assumed)
    pool = _pool(path, map_size, said, assumed)
    spec = BackboneSpec(
        name=f"onnx:{path.name}",
        image_size=given.size,
        map_size=map_size,
        channels=channels,
        mean=mean,
        std=std,
        pool=pool,
        weights=str(path),
        graph=GraphSpec(
            input=given.name,
            input_layout=given.layout,
            input_type=given.type,
            batch=given.batch,
            output=output,
            output_layout=layout,
            prefix_tokens=prefix,
        ),
    )
    return Backbone(spec, path, files_digest(network_files(path)), tuple(assumed))


def read_model(path: Path) -> ModelProto:
    """The graph, without tensors that lie in other files.

    Raises:
        UsageError: it is no ONNX file, or one whose tensors lie outside its folder.
    """
    import onnx

    if not path.is_file():
        raise UsageError(f"{path}: there is no such file. Name an ONNX file: onnx:FILE")
    try:
        model = onnx.load(path, load_external_data=False)
        if not model.graph.node:
            raise ValueError("no graph")
    except Exception as error:  # protobuf has classes of its own, and no types for them
        raise UsageError(
            f"{path}: not an ONNX file ({error}). Export the network with torch.onnx.export or tf2onnx."
        ) from error
    for name in _external_files(model):
        _check_inside(path, name)
    return model


def network_files(path: Path) -> list[Path]:
    """The file and those that its tensors lie in.

    Raises:
        UsageError: it is no ONNX file, or one of those is missing or outside its folder.
    """
    names = sorted(set(_external_files(read_model(path))))
    return [path, *(path.parent / name for name in names)]


def runnable(path: Path, output: str) -> str | bytes:
    """The network up to one output, as engines take it: the file itself where there is nothing to leave out.

    Raises:
        UsageError: see `read_model`; or there is no such output.
    """
    from onnx.external_data_helper import load_external_data_for_model

    model = read_model(path)
    if [each.name for each in model.graph.output] == [output]:
        return str(path)
    load_external_data_for_model(model, str(path.parent))
    keep_output(path, model, output)
    try:
        return bytes(model.SerializeToString())
    except ValueError as error:  # more than two gigabytes
        raise UsageError(
            f"{path}: too large to take out the layer '{output}' ({error}). Export the network up to there."
        ) from error


def keep_output(path: Path, model: ModelProto, output: str) -> None:
    """Leave in the graph what one of its tensors needs, and nothing else.

    Raises:
        UsageError: there is no such tensor.
    """
    from onnx import helper

    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output if name}
    if output not in makers:
        node = next((node for node in graph.node if node.name == output), None)
        if node is None:
            names = [*makers, *(node.name for node in graph.node)]
            there = ", ".join(each.name for each in graph.output)
            raise UsageError(
                f"{path}: there is no output or layer '{output}'. {did_you_mean(output, names)}"
                f"Its outputs are: {there}."
            )
        raise UsageError(f"{path}: '{output}' is a node. Name what it gives: '{node.output[0]}'.")
    needed: set[str] = set()
    wanted = [output]
    while wanted:
        node = makers.get(wanted.pop())
        if node is not None and node.output[0] not in needed:
            needed.update(node.output)
            wanted.extend(_read_by(node))
    kept = [node for node in graph.node if node.output[0] in needed]
    info = next((each for each in graph.output if each.name == output), None)
    own = info or helper.make_empty_tensor_value_info(output)
    del graph.node[:], graph.output[:]
    graph.node.extend(kept)
    graph.output.append(own)
    read = {name for node in kept for name in _read_by(node)}
    tensors = [each for each in graph.initializer if each.name in read]
    del graph.initializer[:]
    graph.initializer.extend(tensors)


def to_input(frames: NDArray[np.uint8], spec: BackboneSpec) -> Array:
    """(N, size, size, 3) bytes as the network takes them."""
    graph = spec.graph
    assert graph is not None
    pixels: Array = frames
    if graph.input_type != "uint8":
        mean, std = np.array(spec.mean, np.float32), np.array(spec.std, np.float32)
        pixels = ((frames - mean) / std).astype(graph.input_type, copy=False)
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)) if graph.input_layout == "NCHW" else pixels


def to_maps(output: Array, spec: BackboneSpec) -> NDArray[np.float32]:
    """What the network gives as pooled maps (N, h, w, C)."""
    graph = spec.graph
    assert graph is not None
    if graph.output_layout == "NCHW":
        output = output.transpose(0, 2, 3, 1)
    elif graph.output_layout != "NHWC":
        tokens = output[:, graph.prefix_tokens :] if graph.output_layout == "tokens" else output
        output = tokens.reshape(len(output), *spec.map_size, spec.channels)
    return max_pool(output, spec.pool).astype(np.float32, copy=False)


def max_pool(maps: Array, side: int) -> Array:
    """Max-pool of (N, h, w, C) over cells of `side` x `side`; the last row and column may be narrower."""
    if side == 1:
        return maps
    rows = np.maximum.reduceat(maps, np.arange(0, maps.shape[1], side), axis=1)
    pooled: Array = np.maximum.reduceat(rows, np.arange(0, maps.shape[2], side), axis=2)
    return pooled


def _external_files(model: ModelProto) -> Iterator[str]:
    """Where tensors lie that are not in the file."""
    from onnx import TensorProto

    functions = chain.from_iterable(map(_constants, function.node) for function in model.functions)
    for tensor in chain(_tensors(model.graph), chain.from_iterable(functions)):
        if tensor.data_location == TensorProto.EXTERNAL:
            yield next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _constants(node)


def _constants(node: NodeProto) -> Iterator[TensorProto]:
    """The tensors that a node holds, those in its branches and loops included."""
    for attribute in node.attribute:
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
    for inner in _inner_graphs(node):
        yield from _tensors(inner)


def _inner_graphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _read_by(node: NodeProto) -> Iterator[str]:
    """All tensors that a node reads, those in its branches and loops included."""
    yield from node.input
    for inner in _inner_graphs(node):
        yield from (each.name for each in inner.output)
        for own in inner.node:
            yield from _read_by(own)


def _check_inside(path: Path, name: str) -> None:
    """Raises:
    UsageError: a file of tensors is missing, or lies outside the folder of the network.
    """
    folder = path.parent.resolve()
    is_plain = name and not PurePosixPath(name).is_absolute() and not PureWindowsPath(name).drive
    if not is_plain or ".." in Path(name).parts or not (folder / name).resolve().is_relative_to(folder):
        raise UsageError(
            f"{path}: refers to tensors in '{name}', outside its own folder, which is not read. Export the "
            "network into one file, or put its files into one folder."
        )
    if not (folder / name).is_file():
        raise UsageError(f"{path}: its tensors are in '{name}', which is not beside it. Put it there.")


def _read_options(path: Path) -> Mapping[str, Any]:
    """Raises:
    UsageError: the file is damaged, or says something that is not asked.
    """
    if not path.exists():
        return {}
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(said, dict):
            raise ValueError("no object")
    except (OSError, ValueError) as error:
        raise UsageError(
            f'{path}: not a JSON object ({error}). Write one such as {{"size": 224}}.'
        ) from error
    for key in said:
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS)
            raise UsageError(f"{path}: unknown key '{key}'. {hint}There are: {', '.join(_KEYS)}.")
    for key, choices in (("input_layout", get_args(InputLayout)), ("layout", get_args(OutputLayout))):
        if key in said and said[key] not in choices:
            raise UsageError(f'{path}: "{key}" is {said[key]!r}. It can be: {", ".join(choices)}.')
    for key, least, most in (("size", 8, LARGEST_SIZE), ("prefix_tokens", 0, 1000), ("pool", 1, 1000)):
        if key in said and not (type(said[key]) is int and least <= said[key] <= most):
            raise UsageError(
                f'{path}: "{key}" is {said[key]!r}. It must be a whole number from {least} to {most:,}.'
            )
    if "output" in said and not isinstance(said["output"], str):
        raise UsageError(f'{path}: "output" is {said["output"]!r}. It must be the name of an output.')
    return said


def _input_of(path: Path, model: ModelProto, said: Mapping[str, Any], assumed: list[str]) -> _Input:
    known = {tensor.name for tensor in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in known]
    if len(inputs) != 1:
        names = ", ".join(each.name for each in inputs) or "none"
        raise UsageError(
            f"{path}: {len(inputs)} inputs ({names}), and one is needed, for pictures. Export the part of "
            "the network that sees pictures."
        )
    [found] = inputs
    shape = _shape(found)
    if len(shape) != 4:
        raise UsageError(
            f"{path}: its input '{found.name}' is {_by(shape)}, and pictures are (N, 3, size, size) or "
            "(N, size, size, 3). Export a network that takes such."
        )
    batch, *_ = shape
    layout: InputLayout
    if "input_layout" in said:
        layout = said["input_layout"]
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
    fixed = height or width
    if fixed and said.get("size", fixed) != fixed:
        raise UsageError(
            f'{path}: takes pictures of {fixed} pixels a side, and {path.name}.json says "size": '
            f"{said['size']}. Correct one of the two."
        )
    size = fixed or said.get("size")
    if size is None:
        size = DEFAULT_SIZE
        assumed.append(f'{size} pixels a side: it takes pictures of any size ("size")')
    return _Input(found.name, layout, _type_of(path, found), int(size), batch)


def _type_of(path: Path, found: ValueInfoProto) -> InputType:
    from onnx import TensorProto

    number = found.type.tensor_type.elem_type
    name = TensorProto.DataType.Name(number).lower()
    names = {"float": "float32", "float16": "float16", "uint8": "uint8"}
    if name not in names:
        raise UsageError(
            f"{path}: takes pictures of {name}, and ctsan gives float, float16 or uint8. Export it with one "
            "of these."
        )
    return cast("InputType", names[name])


def _normalisation(
    path: Path, given: _Input, said: Mapping[str, Any], assumed: list[str]
) -> tuple[Colour, Colour]:
    """Mean and deviation of pixels from 0 to 255; `said` is of pixel * scale."""
    if given.type == "uint8":
        if unused := [key for key in ("scale", "mean", "std") if key in said]:
            raise UsageError(
                f'{path}: takes bytes, which are not normalised, and {path.name}.json says "{unused[0]}". '
                "Take it out."
            )
        return (0.0,) * 3, (1.0,) * 3
    if not any(key in said for key in ("scale", "mean", "std")):
        assumed.append('RGB / 255 with ImageNet\'s mean and deviation ("scale", "mean", "std")')
        return IMAGENET_MEAN, IMAGENET_STD
    scale = said.get("scale", 1 / 255)
    if not _is_number(scale) or scale <= 0:
        raise UsageError(f'{path}.json: "scale" is {scale!r}. It must be a number above 0, such as 0.00392.')
    mean, std = (_colour(path, key, said.get(key, default)) for key, default in (("mean", 0.0), ("std", 1.0)))
    if min(std) <= 0:
        raise UsageError(f'{path}.json: "std" is {said["std"]}. All of it must be above 0.')
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


def _output_of(path: Path, model: ModelProto, said: Mapping[str, Any], assumed: list[str]) -> str:
    if "output" in said:
        keep_output(path, model, said["output"])  # is it there?
        return str(said["output"])
    outputs = list(model.graph.output)
    if len(outputs) == 1:
        return str(outputs[0].name)
    # A grid says more than tokens, and these more than a vector.
    best = max(outputs, key=lambda each: len(_shape(each)) if len(_shape(each)) in (2, 3, 4) else 0)
    names = ", ".join(f"'{each.name}' {_by(_shape(each))}" for each in outputs)
    assumed.append(f"output '{best.name}' of {names} (\"output\")")
    return str(best.name)


def _try(path: Path, given: _Input, output: str) -> Array:
    """What the network makes of grey frames."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read at import: nothing is sent anywhere
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what is wrong is raised, and said once
    count = given.batch or TRIED_FRAMES
    shape = (3, given.size, given.size) if given.layout == "NCHW" else (given.size, given.size, 3)
    try:
        session = onnxruntime.InferenceSession(
            runnable(path, output), options, providers=["CPUExecutionProvider"]
        )
        grey = np.zeros((count, *shape), dtype=given.type)
        found: Array = session.run([output], {given.name: grey})[0]
    except UsageError:
        raise
    except Exception as error:  # ONNX Runtime has a class of its own for every fault
        raise UsageError(
            f"{path}: ONNX Runtime cannot run it on {count} pictures of {given.size} pixels a side "
            f"({str(error).splitlines()[0]}). Export it again, or correct {path.name}.json."
        ) from error
    if found.dtype.kind != "f" or found.ndim not in (2, 3, 4) or len(found) != count or 0 in found.shape:
        raise UsageError(
            f"{path}: its output '{output}' is {_by(found.shape)} of {found.dtype} for {count} pictures. "
            'Maps, tokens or vectors of floats are needed: name such an output or layer as "output" in '
            f"{path.name}.json."
        )
    return found


def _map_of(
    path: Path, output: str, tried: Array, said: Mapping[str, Any], assumed: list[str]
) -> tuple[OutputLayout, int, tuple[int, int], int]:
    """Layout, tokens before the patches, size of the map, channels."""
    shape = tried.shape[1:]
    layout = cast("OutputLayout | None", said.get("layout"))
    ranks = {"NHWC": 3, "NCHW": 3, "tokens": 2, "vector": 1}
    if layout is not None and len(shape) != ranks[layout]:
        raise UsageError(
            f"{path}: its output '{output}' is {_by(tried.shape)}, and {path.name}.json says \"layout\": "
            f'"{layout}". Correct that.'
        )
    match shape:
        case (channels,):
            return "vector", 0, (1, 1), channels
        case (tokens, channels):
            prefix, side = _patches(path, output, tokens, said)
            if prefix and "prefix_tokens" not in said:
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
        f"{path}: its output '{output}' is {_by(tried.shape)}, which does not tell where its channels are. "
        f'Write "layout": "NHWC" or "NCHW" into {path.name}.json.'
    )


def _patches(path: Path, output: str, tokens: int, said: Mapping[str, Any]) -> tuple[int, int]:
    """How many tokens stand before the patches, and how many patches a row has."""
    choices: Sequence[int] = [said["prefix_tokens"]] if "prefix_tokens" in said else PREFIX_TOKENS
    for prefix in choices:
        side = math.isqrt(max(0, tokens - prefix))
        if side and side * side == tokens - prefix:
            return prefix, side
    raise UsageError(
        f"{path}: its output '{output}' has {tokens} tokens, which make no square of patches. Write how many "
        f'stand before them as "prefix_tokens" into {path.name}.json, or name another "output".'
    )


def _pool(path: Path, map_size: tuple[int, int], said: Mapping[str, Any], assumed: list[str]) -> int:
    if "pool" in said:
        if said["pool"] > max(map_size):
            raise UsageError(
                f'{path}.json: "pool" is {said["pool"]}, and the map has {_by(map_size)} cells. Give fewer.'
            )
        return int(said["pool"])
    pool = -(-max(map_size) // GRID)
    if pool > 1:
        assumed.append(f'{pool}×{pool} cells are max-pooled into one, for {GRID}×{GRID} at most ("pool")')
    return pool


def _shape(found: ValueInfoProto) -> list[int | None]:
    return [each.dim_value or None for each in found.type.tensor_type.shape.dim]


def _by(shape: Sequence[int | None]) -> str:
    return "×".join("any" if size is None else str(size) for size in shape)
