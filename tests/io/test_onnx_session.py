"""Graphs as ctsan writes them, and where they run."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import pytest

from ctsan.io import onnx_session
from ctsan.io.onnx_graph import Graph
from ctsan.io.onnx_session import Session

WEIGHTS = {"matrix": np.arange(6, dtype=np.float32).reshape(2, 3), "small": np.ones((), np.float32)}


def running_sum(*, backwards: bool = False) -> Graph:
    """x (T, 3) to its running sums times the matrix, and the whole sum."""
    graph = Graph(WEIGHTS)
    x = graph.input("x", "float32", ["T", 3])
    body = graph.body()
    total, row = body.input("total", "float32"), body.input("row", "float32")
    added = body.op("Add", total, row)
    body.output("after", added)
    body.output("sums", body.op("MatMul", added, body.transposed_weight("matrix")))
    start = graph.constant(np.zeros(3))
    last, sums = graph.scan(body, states=[start], sequences=[x], outputs=1, backwards=backwards)
    graph.output("last", graph.op("Add", last, graph.weight("small")))
    graph.output("sums", sums)
    return graph


@pytest.mark.parametrize("backwards", [False, True])
def test_a_scan_goes_over_the_first_axis(backwards: bool) -> None:
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    found = Session(running_sum(backwards=backwards))({"x": x, "unknown": x})
    sums = np.flip(np.flip(x, 0).cumsum(0), 0) if backwards else x.cumsum(0)
    np.testing.assert_allclose(found["sums"], sums @ WEIGHTS["matrix"].T, atol=1e-5)
    np.testing.assert_allclose(found["last"], x.sum(axis=0) + 1, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 200])
def test_a_matrix_is_transposed_whole(rows: int) -> None:
    matrix = np.random.default_rng(0).normal(size=(rows, 5)).astype(np.float32)
    graph = Graph({"matrix": matrix})
    graph.transposed_weight("matrix")
    np.testing.assert_array_equal(graph.weights["matrix/T"], matrix.T)
    assert graph.weights["matrix/T"].flags.c_contiguous


def test_only_what_is_asked_is_returned() -> None:
    x = np.ones((2, 3), np.float32)
    assert list(Session(running_sum())({"x": x}, ["last"])) == ["last"]


def test_a_file_with_its_weights_is_one_that_others_read() -> None:
    content = running_sum().serialize(with_weights=True)
    model = onnx.load_from_string(content)
    stored = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    np.testing.assert_array_equal(stored["matrix/T"], WEIGHTS["matrix"].T)
    assert stored["small"] == 1
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(
        Session(content)({"x": x})["sums"], Session(running_sum())({"x": x})["sums"]
    )
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


@pytest.mark.parametrize("value", [-1, 0, 127, 128, 2**40, -(2**63)])
def test_whole_numbers_of_any_size_are_written(value: int) -> None:
    graph = Graph({})
    graph.output("y", graph.ints(value), "int64")
    graph.op("Flatten", graph.input("x", "float32", ["a", "b"]), axis=value)
    model = onnx.load_from_string(graph.serialize())
    assert onnx.numpy_helper.to_array(model.graph.initializer[0]).tolist() == [value]
    [attribute] = next(node for node in model.graph.node if node.op_type == "Flatten").attribute
    assert attribute.i == value


def test_without_a_gpu_networks_run_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the build of ONNX Runtime knows CUDA and the machine does not have it: said once."""
    x = np.ones((2, 3), np.float32)
    expected = Session(running_sum(), on_gpu=True)({"x": x})["last"]
    assert not caplog.records
    monkeypatch.setattr(onnx_session, "has_cuda", lambda: True)
    monkeypatch.setattr(onnx_session, "_without_cuda", [])
    with caplog.at_level(logging.WARNING), pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        session = Session(running_sum(), on_gpu=True)
    np.testing.assert_array_equal(session({"x": x})["last"], expected)
    assert "cannot use the GPU" in caplog.text
    monkeypatch.undo()
    assert not onnx_session.has_cuda()
