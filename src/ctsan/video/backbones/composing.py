"""Add preprocessing and pooling to the graph of an ONNX file, for export."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ctsan.errors import UsageError
from ctsan.video.backbones.onnx_model import keep_output, read_model
from ctsan.video.backbones.spec import Backbone

_MIN_OPSET = 11  # for MaxPool with ceil_mode, and Slice with inputs


def write_composed(backbone: Backbone, path: Path) -> None:
    """Write one ONNX file from frames (N, size, size, 3), uint8, to maps (N, h, w, C), float, for any N.

    Raises:
        UsageError: the network has a fixed batch size, or its opset is too old.
    """
    import onnx
    from onnx import TensorProto, compose, helper, numpy_helper
    from onnx.external_data_helper import load_external_data_for_model

    spec, graph = backbone.spec, backbone.spec.graph
    assert graph is not None
    model = read_model(backbone.weights)
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if graph.batch is not None or opset < _MIN_OPSET:
        what = f"it takes {graph.batch} frames at once" if graph.batch else f"it is of ONNX opset {opset}"
        raise UsageError(
            f"{backbone.weights}: {what}, and exported models take any number in opset {_MIN_OPSET} or "
            "later. Export the network so, make features with it and train again."
        )
    load_external_data_for_model(model, str(backbone.weights.parent))
    keep_output(backbone.weights, model, graph.output)
    initializers = {tensor.name for tensor in model.graph.initializer}
    weight_inputs = [info for info in model.graph.input if info.name in initializers]
    for info in weight_inputs:  # old files list their weights as inputs too
        model.graph.input.remove(info)
    model = compose.add_prefix(model, "net/")

    constants = []

    def constant(name: str, values: object, kind: type) -> str:
        constants.append(numpy_helper.from_array(np.array(values, dtype=kind), name))
        return name

    network_input, network_output = f"net/{graph.input}", f"net/{graph.output}"
    before, after = [], []  # nodes before and after the network
    pixels = "frames"  # the tensor to process next
    if graph.input_type != "uint8":
        before += [
            helper.make_node("Cast", [pixels], ["pixels"], to=TensorProto.FLOAT),
            helper.make_node("Sub", ["pixels", constant("mean", spec.mean, np.float32)], ["centred"]),
            helper.make_node("Div", ["centred", constant("std", spec.std, np.float32)], ["scaled"]),
        ]
        pixels = "scaled"
        if graph.input_type == "float16":
            before.append(helper.make_node("Cast", [pixels], ["halved"], to=TensorProto.FLOAT16))
            pixels = "halved"
    order = [0, 3, 1, 2] if graph.input_layout == "NCHW" else [0, 1, 2, 3]
    before.append(helper.make_node("Transpose", [pixels], [network_input], perm=order))

    after.append(helper.make_node("Cast", [network_output], ["floats"], to=TensorProto.FLOAT))
    height, width = spec.map_size
    grid = "floats"
    if graph.output_layout in ("tokens", "vector"):
        if graph.prefix_tokens:
            bounds = [
                constant("first", [graph.prefix_tokens], np.int64),
                constant("last", [np.iinfo(np.int64).max], np.int64),
                constant("axis", [1], np.int64),
            ]
            after.append(helper.make_node("Slice", [grid, *bounds], ["patches"]))
            grid = "patches"
        shape = constant("shape", [-1, height, width, spec.channels], np.int64)
        after.append(helper.make_node("Reshape", [grid, shape], ["grid"]))
        grid = "grid"
    if graph.output_layout != "NCHW":
        after.append(helper.make_node("Transpose", [grid], ["channels"], perm=[0, 3, 1, 2]))
        grid = "channels"
    if spec.pool > 1:
        side = [spec.pool, spec.pool]
        after.append(
            helper.make_node("MaxPool", [grid], ["pooled"], kernel_shape=side, strides=side, ceil_mode=1)
        )
        grid = "pooled"
    after.append(helper.make_node("Transpose", [grid], ["maps"], perm=[0, 2, 3, 1]))

    nodes = [*before, *model.graph.node, *after]
    frames_shape: list[str | int | None] = ["N", spec.image_size, spec.image_size, 3]
    del model.graph.node[:], model.graph.input[:], model.graph.output[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(constants)
    model.graph.input.append(helper.make_tensor_value_info("frames", TensorProto.UINT8, frames_shape))
    maps_shape: list[str | int | None] = ["N", *spec.grid, spec.channels]
    model.graph.output.append(helper.make_tensor_value_info("maps", TensorProto.FLOAT, maps_shape))
    onnx.save(model, path)
