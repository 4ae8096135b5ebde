"""The parts of the models as ONNX graphs, for use without PyTorch. A function is a module of `ctsan.model`.

A part adds its nodes to a graph and returns the names of its tensors. Its weights are found by the prefix of
their names, which are those of the trained model. The axes are those of `ctsan.model`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ctsan.io.onnx_graph import Array, Graph

Weights = Mapping[str, Array]

_EPSILON = 1e-5  # of layer normalisation
_LOWEST = float(np.finfo(np.float32).min)


class State(NamedTuple):
    """Hidden states and cells of an LSTM, one tensor (..., D) for each layer."""

    hidden: list[str]
    cell: list[str]


def linear(graph: Graph, x: str, name: str, *, bias: bool = True) -> str:
    """`nn.Linear`."""
    product = multiply(graph, x, f"{name}.weight")
    return graph.op("Add", product, graph.weight(f"{name}.bias")) if bias else product


def multiply(graph: Graph, x: str, weight: str) -> str:
    """x Wᵀ."""
    return graph.op("MatMul", x, graph.transposed_weight(weight))


def transposed(graph: Graph, x: str, *axes: int) -> str:
    return graph.op("Transpose", x, perm=axes)


def reshaped(graph: Graph, x: str, *shape: int) -> str:
    """Reshape; 0 keeps the size of an axis, and -1 is what is left."""
    return graph.op("Reshape", x, graph.ints(*shape))


def layer_norm(graph: Graph, x: str, name: str, *, bias: bool = True) -> str:
    parameters = [graph.weight(f"{name}.{part}") for part in (("weight", "bias") if bias else ("weight",))]
    return graph.op("LayerNormalization", x, *parameters, axis=-1, epsilon=_EPSILON)


def plain_layer_norm(graph: Graph, x: str, size: int) -> str:
    """Layer normalisation without learnt gains."""
    return graph.op("LayerNormalization", x, graph.constant(np.ones(size)), axis=-1, epsilon=_EPSILON)


def unit_length(graph: Graph, x: str) -> str:
    """`F.normalize` of rows (B, J)."""
    norm = graph.op("ReduceL2", x, graph.ints(1), keepdims=1)
    return graph.op("Div", x, graph.op("Max", norm, graph.constant(1e-12)))


def advance(
    graph: Graph, lstm: str, projected: str, state: State, *, hidden_dim: int, is_real: str | None = None
) -> State:
    """One step of `LayerNormLSTM`.

    Args:
        lstm: prefix of its weights.
        projected: input projection of the gates of the first layer, (..., 4 D).
        is_real: (..., 1), False where the state is kept.
    """
    hiddens: list[str] = []
    cells: list[str] = []
    for number, (hidden, cell) in enumerate(zip(state.hidden, state.cell, strict=True)):
        layer = f"{lstm}.layers.{number}"
        if number:
            projected = project(graph, hiddens[-1], layer)
        from_hidden = multiply(graph, hidden, f"{layer}.from_hidden.weight")
        gates = graph.op("Add", projected, layer_norm(graph, from_hidden, f"{layer}.norm_hidden", bias=False))
        sigmoids, new = graph.ops("Split", gates, graph.ints(3 * hidden_dim, hidden_dim), outputs=2, axis=-1)
        three = graph.ops("Split", graph.op("Sigmoid", sigmoids), outputs=3, axis=-1, num_outputs=3)
        forget, write, show = three
        kept, written = graph.op("Mul", forget, cell), graph.op("Mul", write, graph.op("Tanh", new))
        after = graph.op("Add", kept, written)
        shown = graph.op("Mul", show, graph.op("Tanh", layer_norm(graph, after, f"{layer}.norm_cell")))
        if is_real is not None:
            shown, after = graph.op("Where", is_real, shown, hidden), graph.op("Where", is_real, after, cell)
        hiddens.append(shown)
        cells.append(after)
    return State(hiddens, cells)


def project(graph: Graph, x: str, layer: str) -> str:
    """Input projection of the gates, (..., 4 D)."""
    return layer_norm(graph, multiply(graph, x, f"{layer}.from_input.weight"), f"{layer}.norm_input")


def run_lstm(
    graph: Graph,
    lstm: str,
    x: str,
    state: State,
    is_real: str,
    *,
    hidden_dim: int,
    backwards: bool = False,
) -> tuple[str, State]:
    """Run `LayerNormLSTM` over a sequence.

    Args:
        x: (B, T, input).
        is_real: (B, T), True where a step is not padding.

    Returns:
        The top layer's hidden states (B, T, D), and the state after the last real step.
    """
    steps = transposed(graph, project(graph, x, f"{lstm}.layers.0"), 1, 0, 2)  # (T, B, 4 D)
    real_steps = graph.op("Unsqueeze", transposed(graph, is_real, 1, 0), graph.ints(2))  # (T, B, 1)
    body = graph.body()
    before = state_inputs(body, len(state.hidden))
    projected, here = body.input("projected", "float32"), body.input("here", "bool")
    after = advance(body, lstm, projected, before, hidden_dim=hidden_dim, is_real=here)
    state_outputs(body, after)
    body.output("top", after.hidden[-1])
    *last, tops = graph.scan(
        body,
        states=[*state.hidden, *state.cell],
        sequences=[steps, real_steps],
        outputs=1,
        backwards=backwards,
    )
    layers = len(state.hidden)
    return transposed(graph, tops, 1, 0, 2), State(last[:layers], last[layers:])


def state_inputs(body: Graph, num_layers: int) -> State:
    """The states of a `Scan` as inputs of its body: hidden states, then cells."""
    hidden = [body.input(f"hidden{number}", "float32") for number in range(num_layers)]
    return State(hidden, [body.input(f"cell{number}", "float32") for number in range(num_layers)])


def state_outputs(body: Graph, state: State) -> None:
    for kind, tensors in (("hidden", state.hidden), ("cell", state.cell)):
        for number, tensor in enumerate(tensors):
            body.output(f"next_{kind}{number}", tensor)


def zero_state(graph: Graph, like: str, num_layers: int) -> State:
    """The zero state, of the shape of a tensor."""
    zeros = graph.op("ConstantOfShape", graph.op("Shape", like))
    return State([zeros] * num_layers, [zeros] * num_layers)


def given_state(graph: Graph, num_layers: int) -> State:
    """The inputs `hidden` and `cell`, (layers, B, D), by layer."""
    tensors = {name: graph.input(name, "float32", [num_layers, "rows", "D"]) for name in ("hidden", "cell")}
    return State(
        *([_at(graph, tensor, number) for number in range(num_layers)] for tensor in tensors.values())
    )


def output_state(graph: Graph, state: State, prefix: str = "") -> None:
    """The outputs `hidden` and `cell`, (layers, B, D)."""
    for name, tensors in (("hidden", state.hidden), ("cell", state.cell)):
        stacked = [graph.op("Unsqueeze", tensor, graph.ints(0)) for tensor in tensors]
        graph.output(prefix + name, graph.op("Concat", *stacked, axis=0))


def _at(graph: Graph, tensor: str, index: int) -> str:
    return graph.op("Gather", tensor, graph.constant(index, "int64"), axis=0)


def num_layers_of(weights: Weights, lstm: str) -> int:
    return sum(name.startswith(f"{lstm}.layers.") and name.endswith("from_hidden.weight") for name in weights)


# Semantic attention: model/semantic_attention.py and model/word_input.py.


def is_word(graph: Graph, concepts: str) -> str:
    """(B, 1, K), False where there is no concept word: its embedding (B, K, E) is zero."""
    largest = graph.op("ReduceMax", graph.op("Abs", concepts), graph.ints(2), keepdims=0)
    return graph.op("Unsqueeze", graph.op("Greater", largest, graph.constant(0.0)), graph.ints(1))


def _concept_attention(graph: Graph, scores: str, slot_is_word: str) -> str:
    masked = graph.op("Where", slot_is_word, scores, graph.constant(_LOWEST))
    weights = graph.op("Softmax", masked, axis=-1)
    return graph.op("Where", slot_is_word, weights, graph.constant(0.0))


def word_input(
    graph: Graph, words: str, concepts: str, slot_is_word: str, weights: Weights, prefix: str
) -> tuple[str, str | None]:
    """`WordInput`: words (B, T, E), concept words (B, K, E) to inputs (B, T, D) and weights γ (B, T, K)."""
    if f"{prefix}.attention.relate" not in weights:
        return multiply(graph, words, f"{prefix}.project.weight"), None
    attention = f"{prefix}.attention"
    related = graph.op("MatMul", words, graph.weight(f"{attention}.relate"))  # eq. 9
    scores = graph.op("MatMul", related, transposed(graph, concepts, 0, 2, 1))  # (B, T, K)
    shares = _concept_attention(graph, scores, slot_is_word)
    gated = graph.op("Mul", graph.weight(f"{attention}.gate"), graph.op("MatMul", shares, concepts))
    mixed = graph.op("Add", words, gated)  # eq. 10
    return multiply(graph, mixed, f"{attention}.project.weight"), shares


def related_concepts(graph: Graph, concepts: str, prefix: str) -> str:
    """`OutputSemanticAttention.related`: (B, K, E) to (B, K, D)."""
    return multiply(graph, graph.op("Tanh", concepts), f"{prefix}.relate.weight")


def output_attention(
    graph: Graph, hidden: str, related: str, slot_is_word: str, prefix: str
) -> tuple[str, str]:
    """`OutputSemanticAttention`: states (B, T, D) to states (B, T, D) and weights β (B, T, K)."""
    scores = graph.op("MatMul", hidden, transposed(graph, related, 0, 2, 1))  # eq. 11
    shares = _concept_attention(graph, scores, slot_is_word)
    gated = graph.op("Mul", graph.weight(f"{prefix}.gate"), graph.op("MatMul", shares, related))
    return graph.op("Add", hidden, gated), shares  # eq. 12


# The concept word detector: model/concept_detector.py.


def trace_detector(
    graph: Graph,
    regions: str,
    frame_is_real: str,
    weights: Weights,
    prefix: str,
    *,
    grid: Sequence[int],
    tie_traces: bool,
) -> tuple[str, str, str]:
    """`ConceptDetector`: regions (B, N, D, h, w) to scores (B, V), attention (B, N, L, P) and states."""
    height, width = grid
    num_traces = height * width
    attention_dim, hidden_dim = weights[f"{prefix}.attend.first.weight"].shape[:2]
    layer = f"{prefix}.trace.layers.0"
    frames = transposed(graph, regions, 1, 0, 2, 3, 4)  # (N, B, D, h, w)
    cells = transposed(graph, reshaped(graph, frames, 0, 0, 0, -1), 0, 1, 3, 2)  # (N, B, P, D)
    mapped = multiply(graph, cells, f"{layer}.from_input.weight")  # (N, B, P, 4 D)
    real = graph.op("Unsqueeze", transposed(graph, frame_is_real, 1, 0), graph.ints(2, 3))  # (N, B, 1, 1)
    is_first = graph.op("Equal", _places(graph, frames), graph.constant(0, "int64"))  # (N,)
    zeros = graph.op("Slice", cells, graph.ints(0), graph.ints(1), graph.ints(0))
    start = zero_state(graph, _at(graph, zeros, 0), num_layers_of(weights, f"{prefix}.trace"))  # L is P

    # The first convolution of v ⊙ h is a product of h and W convolved with v, the same for all traces.
    kernels = weights[f"{prefix}.attend.first.weight"].transpose(1, 0, 2, 3).reshape(-1, 1, 3, 3)
    shared = graph.add_weight(f"{prefix}.attend.first.shared", kernels)  # (D A, 1, 3, 3)

    body = graph.body()
    before = state_inputs(body, len(start.hidden))
    frame, inputs = body.input("frame", "float32"), body.input("inputs", "float32")
    here, first = body.input("real", "bool"), body.input("first", "bool")
    convolved = body.op("Conv", frame, shared, group=hidden_dim, pads=(1, 1, 1, 1))  # (B, D A, h, w)
    convolved = reshaped(body, convolved, 0, hidden_dim, attention_dim * num_traces)
    inner = reshaped(
        body, body.op("MatMul", before.hidden[-1], convolved), 0, num_traces, attention_dim, -1
    )  # (B, L, A, P)
    bias = reshaped(body, body.weight(f"{prefix}.attend.first_bias"), 1, 1, attention_dim, 1)
    inner = reshaped(body, body.op("Relu", body.op("Add", inner, bias)), -1, attention_dim, height, width)
    second = body.op("Conv", inner, body.weight(f"{prefix}.attend.second.weight"), pads=(1, 1, 1, 1))
    shares = body.op("Softmax", reshaped(body, second, -1, num_traces, num_traces), axis=-1)  # eqs. 3 and 4
    shares = body.op("Where", first, body.constant(np.eye(num_traces)[None]), shares)  # (B, L, P)
    context = layer_norm(body, body.op("MatMul", shares, inputs), f"{layer}.norm_input")  # eq. 1
    after = advance(body, f"{prefix}.trace", context, before, hidden_dim=hidden_dim, is_real=here)  # eq. 2
    state_outputs(body, after)
    body.output("shares", shares)

    *last, attention = graph.scan(
        body,
        states=[*start.hidden, *start.cell],
        sequences=[frames, mapped, real, is_first],
        outputs=1,
    )
    states = last[len(start.hidden) - 1]  # (B, L, D)
    if tie_traces:
        combined = graph.op("ReduceMean", states, graph.ints(1), keepdims=0)
    else:
        combined = reshaped(graph, states, 0, -1)
    scores = linear(graph, combined, f"{prefix}.name")  # eq. 5
    return scores, transposed(graph, attention, 1, 0, 2, 3), states


def _places(graph: Graph, x: str) -> str:
    """0, 1, … along the first axis."""
    zero, one = graph.constant(0, "int64"), graph.constant(1, "int64")
    return graph.op("Range", zero, _at(graph, graph.op("Shape", x), 0), one)


def regions_of(graph: Graph, maps: str, weights: Weights, prefix: str, *, grid: Sequence[int]) -> str:
    """`ClipEncoder.regions`: maps (B, N, h, w, C) to regions (B, N, D, h, w)."""
    height, width = grid
    hidden_dim, channels, kernel, _ = weights[f"{prefix}.reduce.conv.weight"].shape
    scaled = standardised(graph, maps, prefix)
    flat = transposed(graph, reshaped(graph, scaled, -1, height, width, channels), 0, 3, 1, 2)
    convolved = graph.op(
        "Conv", flat, graph.weight(f"{prefix}.reduce.conv.weight"), pads=(kernel // 2,) * 4
    )  # (B N, D, h, w)
    sizes = graph.op("Slice", graph.op("Shape", maps), graph.ints(0), graph.ints(2))
    shape = graph.op("Concat", sizes, graph.ints(hidden_dim, height, width), axis=0)
    return graph.op("Reshape", convolved, shape)


def standardised(graph: Graph, x: str, prefix: str) -> str:
    """Channels (..., C), by their means and scales."""
    centred = graph.op("Sub", x, graph.weight(f"{prefix}.channel_means"))
    return graph.op("Div", centred, graph.weight(f"{prefix}.channel_scales"))


def clip_means(graph: Graph, maps: str, frame_is_real: str, prefix: str) -> str:
    """Standardised mean features (B, C) of maps (B, N, h, w, C), over real frames."""
    frames = graph.op("ReduceMean", maps, graph.ints(2, 3), keepdims=0)  # (B, N, C)
    real = graph.op("Cast", graph.op("Unsqueeze", frame_is_real, graph.ints(2)), to=1)  # (B, N, 1)
    total = graph.op("ReduceSum", graph.op("Mul", frames, real), graph.ints(1), keepdims=0)
    means = graph.op("Div", total, graph.op("ReduceSum", real, graph.ints(1), keepdims=0))
    return standardised(graph, means, prefix)


def mlp_probe(graph: Graph, means: str, weights: Weights, prefix: str) -> str:
    """`MLPProbe`: mean features (B, C) to logits (B, V)."""
    scaled = graph.op("Sub", means, graph.weight(f"{prefix}.centre"))
    scaled = graph.op("Div", scaled, graph.weight(f"{prefix}.scale"))
    normalised = plain_layer_norm(graph, scaled, len(weights[f"{prefix}.centre"]))
    hidden = graph.op("Gelu", linear(graph, normalised, f"{prefix}.hidden"))
    return linear(graph, hidden, f"{prefix}.name")
