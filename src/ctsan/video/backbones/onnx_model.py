"""Read ONNX files and cut their graphs.

An ONNX file runs no code of its own. Its tensors may be in other files; only files below its folder are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from ctsan.errors import UsageError, did_you_mean
from ctsan.io.extras import extra

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto


def read_model(path: Path) -> ModelProto:
    """The model, without tensors that are in other files.

    Raises:
        UsageError: it is not an ONNX file, or its tensors are missing or outside its folder.
    """
    with extra("onnx", "A network in an ONNX file"):
        import onnx

    if not path.is_file():
        raise UsageError(f"{path}: there is no such file. Name an ONNX file: onnx:FILE")
    try:
        model = onnx.load(path, load_external_data=False)
        if not model.graph.node:
            raise ValueError("no graph")
    except Exception as error:  # protobuf raises its own, untyped classes
        raise UsageError(
            f"{path}: not an ONNX file ({error}). Export the network with torch.onnx.export or tf2onnx."
        ) from error
    for name in _external_files(model):
        _check_external_file(path, name)
    return model


def network_files(path: Path) -> list[Path]:
    """The ONNX file and the files of its external tensors.

    Raises:
        UsageError: see `read_model`.
    """
    names = sorted(set(_external_files(read_model(path))))
    return [path, *(path.parent / name for name in names)]


def model_up_to(path: Path, output: str) -> str | bytes:
    """The network up to one output, for an engine to load: the path if that is its only output, else bytes.

    Raises:
        UsageError: see `read_model`; or there is no such output.
    """
    from onnx.external_data_helper import load_external_data_for_model

    model = read_model(path)
    if [info.name for info in model.graph.output] == [output]:
        return str(path)
    load_external_data_for_model(model, str(path.parent))
    keep_output(path, model, output)
    try:
        return bytes(model.SerializeToString())
    except ValueError as error:  # more than 2 GB
        raise UsageError(
            f"{path}: too large to cut at the layer '{output}' ({error}). Export the network up to there."
        ) from error


def keep_output(path: Path, model: ModelProto, output: str) -> None:
    """Reduce the graph, in place, to the nodes and tensors that one output needs.

    Raises:
        UsageError: there is no such tensor.
    """
    from onnx import helper

    graph = model.graph
    producers = {name: node for node in graph.node for name in node.output if name}
    if output not in producers:
        node = next((node for node in graph.node if node.name == output), None)
        if node is None:
            names = [*producers, *(node.name for node in graph.node)]
            output_names = ", ".join(info.name for info in graph.output)
            raise UsageError(
                f"{path}: there is no output or layer '{output}'. {did_you_mean(output, names)}"
                f"Its outputs are: {output_names}."
            )
        raise UsageError(f"{path}: '{output}' is a node. Name its output: '{node.output[0]}'.")
    needed: set[str] = set()
    pending = [output]
    while pending:
        node = producers.get(pending.pop())
        if node is not None and node.output[0] not in needed:
            needed.update(node.output)
            pending.extend(_inputs_of(node))
    kept_nodes = [node for node in graph.node if node.output[0] in needed]
    declared = next((info for info in graph.output if info.name == output), None)
    output_info = declared or helper.make_empty_tensor_value_info(output)
    del graph.node[:], graph.output[:]
    graph.node.extend(kept_nodes)
    graph.output.append(output_info)
    used = {name for node in kept_nodes for name in _inputs_of(node)}
    initializers = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(initializers)


def _external_files(model: ModelProto) -> Iterator[str]:
    """The files of external tensors, relative to the model's folder."""
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
    """The tensors in a node's attributes, including those of its subgraphs."""
    for attribute in node.attribute:
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
    for subgraph in _subgraphs(node):
        yield from _tensors(subgraph)


def _subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The branches and loop bodies of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _inputs_of(node: NodeProto) -> Iterator[str]:
    """The names of all tensors that a node reads, including those of its subgraphs."""
    yield from node.input
    for subgraph in _subgraphs(node):
        yield from (info.name for info in subgraph.output)
        for inner_node in subgraph.node:
            yield from _inputs_of(inner_node)


def _check_external_file(path: Path, name: str) -> None:
    """Check that external tensors lie in the folder of the network, because a network may come from anywhere.

    Raises:
        UsageError: a file of external tensors is missing, or outside the folder of the network.
    """
    folder = path.parent.resolve()
    is_relative = name and not PurePosixPath(name).is_absolute() and not PureWindowsPath(name).drive
    if not is_relative or ".." in Path(name).parts or not (folder / name).resolve().is_relative_to(folder):
        raise UsageError(
            f"{path}: refers to tensors in '{name}', outside its own folder, which is not read. Export the "
            "network into one file, or put its files into one folder."
        )
    if not (folder / name).is_file():
        raise UsageError(f"{path}: its tensors are in '{name}', which is not beside it. Put it there.")
