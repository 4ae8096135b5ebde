"""Write ONNX graphs without the `onnx` package, whose import and size a user of trained models would pay for.

`Graph` collects nodes and gives the bytes of a model (opset 20). Large tensors stay outside: `weight` only
declares them, and ONNX Runtime gets them as they are in memory (`onnx_session`). The encoding is that of
protocol buffers, with the field numbers of onnx.proto3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_IR_VERSION, _OPSET = 9, 20
_TYPES = {"float32": 1, "uint8": 2, "int64": 7, "bool": 9, "float16": 10}  # TensorProto.DataType
_FLOAT, _INT, _GRAPH, _INTS = 1, 2, 5, 7  # AttributeProto.AttributeType
_VARINT, _BYTES, _FIXED32 = 0, 2, 5  # wire types
_ROWS_AT_ONCE = 64  # of a matrix that is transposed: they fit into the cache of a core
_EXTERNAL = 1  # TensorProto.DataLocation


class Graph:
    """A graph under construction. A tensor is known by its name.

    Args:
        weights: large tensors by name, which `weight` may refer to.
        outer: the graph whose tensors the nodes of this one may read, if it is the body of a `Scan`.
    """

    def __init__(self, weights: Mapping[str, Array], outer: Graph | None = None) -> None:
        self._available = dict(weights)
        self._outer = outer
        self._numbers: Iterator[int] = outer._numbers if outer else count()  # for unique names
        self._nodes: list[bytes] = []
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []
        self._constants: list[bytes] = []
        self.weights: dict[str, Array] = {}  # those in use

    def input(self, name: str, dtype: str, shape: Sequence[str | int] | None = None) -> str:
        """Declare an input. An axis of variable length has a name."""
        self._inputs.append(_value(name, dtype, shape))
        return name

    def output(self, name: str, tensor: str, dtype: str = "float32") -> None:
        self._nodes.append(_node("Identity", [tensor], [name], {}))
        self._outputs.append(_value(name, dtype, None))

    def constant(self, values: object, dtype: str = "float32") -> str:
        """A small tensor, which is part of the graph."""
        name = self._new()
        array = np.asarray(values, dtype)
        self._constants.append(_tensor(name, array) + _field(9, array.tobytes()))
        return name

    def ints(self, *values: int) -> str:
        """A vector of whole numbers, such as axes or a shape."""
        return self.constant(values, "int64")

    def weight(self, name: str) -> str:
        """A large tensor, by its name among the weights."""
        if self._outer is not None:
            return self._outer.weight(name)
        self.weights[name] = self._available[name]
        return name

    def transposed_weight(self, name: str) -> str:
        """A matrix, transposed. ONNX Runtime would do so too when it loads the graph, in more time."""
        if self._outer is not None:
            return self._outer.transposed_weight(name)
        return self.add_weight(f"{name}/T", _transposed(self._available[name]))

    def add_weight(self, name: str, values: Array) -> str:
        """A large tensor that is computed from the weights."""
        if self._outer is not None:
            return self._outer.add_weight(name, values)
        if name not in self._available:
            self._available[name] = np.ascontiguousarray(values)
        return self.weight(name)

    def op(self, kind: str, *inputs: str, **attributes: float | Sequence[int]) -> str:
        """Add a node with one output, and return its name. An input that is left out is an empty name."""
        return self.ops(kind, *inputs, outputs=1, **attributes)[0]

    def ops(self, kind: str, *inputs: str, outputs: int, **attributes: float | Sequence[int]) -> list[str]:
        """Add a node with several outputs."""
        names = [self._new() for _ in range(outputs)]
        self._nodes.append(_node(kind, inputs, names, attributes))
        return names

    def scan(
        self,
        body: Graph,
        *,
        states: Sequence[str],
        sequences: Sequence[str],
        outputs: int,
        backwards: bool = False,
    ) -> list[str]:
        """Run a body over the first axis of sequences.

        Args:
            body: its inputs are the states, then a slice of each sequence; its outputs the new states, then
                what is collected from each step.
            outputs: how many tensors are collected.
            backwards: begin with the last slice. What is collected keeps the order of the sequences.

        Returns:
            The last states, then the collected tensors.
        """
        names = [self._new() for _ in range(len(states) + outputs)]
        attributes: dict[str, Any] = {"num_scan_inputs": len(sequences), "body": body}
        if backwards:
            attributes |= {"scan_input_directions": [1] * len(sequences)}
            attributes |= {"scan_output_directions": [1] * outputs}
        self._nodes.append(_node("Scan", [*states, *sequences], names, attributes))
        return names

    def body(self) -> Graph:
        """A new graph that may read the tensors of this one."""
        return Graph({}, outer=self)

    def serialize(self, *, with_weights: bool = False) -> bytes:
        """The bytes of an ONNX file, which is whole only with its weights."""
        weights = b"".join(
            _field(5, _tensor(name, array) + (_field(9, array.tobytes()) if with_weights else _OUTSIDE))
            for name, array in self.weights.items()
        )
        graph, opset = self._graph() + weights, _field(2, _OPSET)
        return _field(1, _IR_VERSION) + _field(2, "ctsan") + _field(7, graph) + _field(8, opset)

    def _graph(self) -> bytes:
        """The graph without its weights."""
        parts = [_field(1, node) for node in self._nodes]
        parts.append(_field(2, "ctsan"))
        parts += [_field(5, tensor) for tensor in self._constants]
        parts += [_field(11, value) for value in self._inputs]
        parts += [_field(12, value) for value in self._outputs]
        return b"".join(parts)

    def _new(self) -> str:
        return f"t{next(self._numbers)}"


def _transposed(matrix: Array) -> Array:
    """The transpose, contiguous. In blocks of rows, a large one takes a quarter of the time of one copy."""
    result = np.empty(matrix.shape[::-1], matrix.dtype)
    for start in range(0, len(matrix), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        result[:, rows] = matrix[rows].T
    return result


def _node(kind: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Any]) -> bytes:
    parts = [_field(1, name) for name in inputs]
    parts += [_field(2, name) for name in outputs]
    parts.append(_field(4, kind))
    parts += [_field(5, _attribute(name, value)) for name, value in attributes.items()]
    return b"".join(parts)


def _attribute(name: str, value: float | Sequence[int] | Graph) -> bytes:
    start = _field(1, name)
    if isinstance(value, Graph):
        return start + _field(6, value._graph()) + _field(20, _GRAPH)
    if isinstance(value, float):
        return start + _key(2, _FIXED32) + struct.pack("<f", value) + _field(20, _FLOAT)
    if isinstance(value, int):
        return start + _field(3, value) + _field(20, _INT)
    return start + b"".join(_field(8, number) for number in value) + _field(20, _INTS)


def _tensor(name: str, array: Array) -> bytes:
    dims = b"".join(_field(1, size) for size in array.shape)
    return dims + _field(2, _TYPES[array.dtype.name]) + _field(8, name)


def _value(name: str, dtype: str, shape: Sequence[str | int] | None) -> bytes:
    kind = _field(1, _TYPES[dtype])
    if shape is not None:
        sizes = (_field(2 if isinstance(size, str) else 1, size) for size in shape)
        kind += _field(2, b"".join(_field(1, size) for size in sizes))
    return _field(1, name) + _field(2, _field(1, kind))


def _field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return _key(number, _VARINT) + _varint(value)
    content = value.encode() if isinstance(value, str) else value
    return _key(number, _BYTES) + _varint(len(content)) + content


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # a negative number is its two's complement
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# How a tensor is declared that is not in the graph.
_OUTSIDE = _field(13, _field(1, "location") + _field(2, "in memory")) + _field(14, _EXTERNAL)
