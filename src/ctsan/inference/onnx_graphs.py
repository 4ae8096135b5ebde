"""The networks of the models as ONNX graphs, built from trained weights: one function per network.

All sequences are padded, (B, T) with True for a real word in `is_real`. Words are embedded and concept words
are selected in NumPy (`onnx_model`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ctsan.inference import onnx_parts as parts
from ctsan.inference.onnx_parts import State, Weights
from ctsan.io.onnx_graph import Graph

ENCODER = "clip_encoder"


def clip_encoder(
    weights: Weights, *, grid: Sequence[int], has_video: bool, tie_traces: bool, hidden_dim: int
) -> Graph:
    """Maps (B, N, h, w, C) to the state s_N, and what the detector finds, if there is one.

    Outputs: `hidden` and `cell` (layers, B, D), unless the model sees no video; `scores` (B, V), `attention`
    (B, N, L, P) and `states` (B, L, D) of the detector; `probed` (B, V) of the probe.
    """
    graph = Graph(weights)
    height, width = grid
    maps = graph.input("maps", "float32", ["B", "N", height, width, "C"])
    frame_is_real = graph.input("frame_is_real", "bool", ["B", "N"])
    regions = parts.regions_of(graph, maps, weights, ENCODER, grid=grid)
    if has_video:
        lstm = f"{ENCODER}.encode_video.lstm"
        averages = graph.op("ReduceMean", regions, graph.ints(3, 4), keepdims=0)  # (B, N, D)
        first = graph.op("Gather", averages, graph.constant(0, "int64"), axis=1)
        start = parts.zero_state(graph, first, parts.num_layers_of(weights, lstm))
        _, state = parts.run_lstm(graph, lstm, averages, start, frame_is_real, hidden_dim=hidden_dim)
        parts.output_state(graph, state)
    if f"{ENCODER}.detector.name.weight" in weights:
        scores, attention, states = parts.trace_detector(
            graph,
            regions,
            frame_is_real,
            weights,
            f"{ENCODER}.detector",
            grid=grid,
            tie_traces=tie_traces,
        )
        if f"{ENCODER}.probe.name.weight" in weights:
            means = parts.clip_means(graph, maps, frame_is_real, ENCODER)
            probed = parts.mlp_probe(graph, means, weights, f"{ENCODER}.probe")
            graph.output("probed", probed)
            scores = graph.op("Add", probed, scores)  # the traces learn a residual of the probe's scores
        graph.output("scores", scores)
        graph.output("attention", attention)
        graph.output("states", states)
    return graph


def mean_pooling(weights: Weights) -> Graph:
    """`MeanPooling`: maps (B, N, h, w, C) to normalised means (B, C)."""
    graph = Graph(weights)
    maps = graph.input("maps", "float32", ["B", "N", "h", "w", "C"])
    means = parts.clip_means(graph, maps, graph.input("frame_is_real", "bool", ["B", "N"]), ENCODER)
    size = len(weights[f"{ENCODER}.channel_means"])
    graph.output("pooled", parts.plain_layer_norm(graph, means, size))
    return graph


def related_concepts(weights: Weights, attention: str) -> Graph:
    """The output attention's projection of concept words (B, K, E), the same at every step: (B, K, D)."""
    graph = Graph(weights)
    concepts = graph.input("concepts", "float32", ["B", "K", "E"])
    graph.output("related", parts.related_concepts(graph, concepts, attention))
    return graph


def caption_step(weights: Weights, *, hidden_dim: int) -> Graph:
    """One step of the `CaptionDecoder` for W hypotheses of each of B clips.

    Outputs: `log_probabilities` (B W, words), `next_hidden` and `next_cell` (layers, B W, D), `input_weights`
    and `output_weights` (B, W, K) of the attentions that are enabled.
    """
    graph = Graph(weights)
    words = graph.input("words", "float32", ["B", "W", "E"])
    concepts = graph.input("concepts", "float32", ["B", "K", "E"])
    before = parts.given_state(graph, parts.num_layers_of(weights, "decode.lstm"))
    slots = parts.is_word(graph, concepts)
    x, input_weights = parts.word_input(graph, words, concepts, slots, weights, "decode.word_input")
    projected = parts.project(graph, x, "decode.lstm.layers.0")
    rows = parts.reshaped(graph, projected, -1, 4 * hidden_dim)  # (B W, 4 D)
    after = parts.advance(graph, "decode.lstm", rows, before, hidden_dim=hidden_dim)
    output = after.hidden[-1]
    if "decode.output_attention.gate" in weights:
        related = graph.input("related", "float32", ["B", "K", "D"])
        sizes = graph.op("Slice", graph.op("Shape", words), graph.ints(0), graph.ints(2))
        shape = graph.op("Concat", sizes, graph.ints(hidden_dim), axis=0)
        by_clip = graph.op("Reshape", output, shape)  # (B, W, D)
        mixed, shares = parts.output_attention(graph, by_clip, related, slots, "decode.output_attention")
        output = parts.reshaped(graph, mixed, -1, hidden_dim)
        graph.output("output_weights", shares)
    scores = parts.linear(graph, output, "decode.say")  # eq. 13
    graph.output("log_probabilities", graph.op("LogSoftmax", scores, axis=-1))
    parts.output_state(graph, after, "next_")
    if input_weights is not None:
        graph.output("input_weights", input_weights)
    return graph


def blank_reader(weights: Weights, *, hidden_dim: int) -> Graph:
    """`BlankModel`: `scores` (M, words) of the blank at `blanks` (M, 1) of each sentence.

    Further outputs: `input_weights` (M, T, K) and `output_weights` (M, 1, K) of the enabled attentions.
    """
    graph = Graph(weights)
    x, is_real, state, concepts, slots = _sentences(graph, weights, "read_forwards")
    blanks = graph.input("blanks", "int64", ["rows", 1])
    read = []
    for lstm, backwards in (("read_forwards", False), ("read_backwards", True)):
        if parts.num_layers_of(weights, lstm):
            outputs, _ = parts.run_lstm(
                graph, lstm, x, state, is_real, hidden_dim=hidden_dim, backwards=backwards
            )
            read.append(graph.op("GatherND", outputs, blanks, batch_dims=1))  # (M, D)
    both = graph.op("Concat", *read, axis=-1)  # (M, 2 D)
    hidden = graph.op("Unsqueeze", graph.op("Tanh", parts.linear(graph, both, "join")), graph.ints(1))
    if "output_attention.gate" in weights:
        related = parts.related_concepts(graph, concepts, "output_attention")
        hidden, shares = parts.output_attention(graph, hidden, related, slots, "output_attention")
        graph.output("output_weights", shares)
    graph.output("scores", parts.linear(graph, graph.op("Squeeze", hidden, graph.ints(1)), "say"))
    return graph


def choice_reader(weights: Weights, *, hidden_dim: int) -> Graph:
    """`ChoiceModel`: `scores` (M,) of sentences with the clips in their rows; `input_weights` (M, T, K)."""
    graph = Graph(weights)
    x, is_real, state, *_ = _sentences(graph, weights, "lstm")
    _, last = parts.run_lstm(graph, "lstm", x, state, is_real, hidden_dim=hidden_dim)
    aligned = graph.op("Relu", parts.linear(graph, last.hidden[-1], "align"))
    scores = parts.linear(graph, aligned, "rate", bias=False)
    graph.output("scores", graph.op("Squeeze", scores, graph.ints(1)))
    return graph


def query_reader(weights: Weights, *, hidden_dim: int) -> Graph:
    """The query of a `RetrievalModel`: `queries` h_T (M, D), and `input_weights` (M, T, K)."""
    graph = Graph(weights)
    x, is_real, state, *_ = _sentences(graph, weights, "lstm")
    _, last = parts.run_lstm(graph, "lstm", x, state, is_real, hidden_dim=hidden_dim)
    graph.output("queries", last.hidden[-1])
    return graph


def joint_scorer(weights: Weights, *, pieces: int) -> Graph:
    """`RetrievalModel.score_joint`: sketches ν (M, sketch) to `scores` (M,)."""
    graph = Graph(weights)
    joined = parts.multiply(graph, graph.input("sketches", "float32", ["M", "S"]), "join.weight")
    largest = graph.op("ReduceMax", parts.reshaped(graph, joined, 0, pieces, -1), graph.ints(1), keepdims=0)
    scores = parts.linear(graph, largest, "rate", bias=False)
    graph.output("scores", graph.op("Squeeze", scores, graph.ints(1)))
    return graph


def clip_embedder(weights: Weights) -> Graph:
    """`DualEncoder.embed_clips`: mean features (B, C) to `embedded` (B, J), of length one."""
    graph = Graph(weights)
    pooled = graph.input("pooled", "float32", ["B", "C"])
    embedded = parts.linear(graph, pooled, "from_clip")
    if "perceptron.0.weight" in weights:
        hidden = graph.op("Gelu", parts.linear(graph, pooled, "perceptron.0"))
        embedded = graph.op("Add", embedded, parts.linear(graph, hidden, "perceptron.3", bias=False))
    graph.output("embedded", parts.unit_length(graph, embedded))
    return graph


def sentence_embedder(weights: Weights) -> Graph:
    """`DualEncoder.embed_sentences`: words (M, T, E) with logits (M, 1, T), -inf for padding, to (M, J)."""
    graph = Graph(weights)
    words = graph.input("words", "float32", ["M", "T", "E"])
    shares = graph.op("Softmax", graph.input("logits", "float32", ["M", 1, "T"]), axis=-1)
    bags = graph.op("Squeeze", graph.op("MatMul", shares, words), graph.ints(1))
    embedded = parts.linear(graph, bags, "from_words", bias=False)
    graph.output("embedded", parts.unit_length(graph, embedded))
    return graph


def phrase_weights(weights: Weights) -> Graph:
    """`PhraseProbe.weigh`: mean features (B, C) to predicted tf-idf `weights` (B, phrases)."""
    graph = Graph(weights)
    directions = parts.multiply(graph, graph.input("pooled", "float32", ["B", "C"]), "phrases.clip")
    predicted = parts.multiply(graph, directions, "phrases.phrase")
    graph.output("weights", graph.op("Add", graph.weight("phrases.often"), predicted))
    return graph


def _sentences(graph: Graph, weights: Weights, lstm: str) -> tuple[str, str, State, str, str]:
    """Declare sentences about clips as inputs, and mix concept words into their words.

    Returns:
        LSTM inputs (M, T, D), `is_real`, the initial state, the concept words, and which slots have one.
    """
    words = graph.input("words", "float32", ["rows", "T", "E"])
    is_real = graph.input("is_real", "bool", ["rows", "T"])
    concepts = graph.input("concepts", "float32", ["rows", "K", "E"])
    state = parts.given_state(graph, parts.num_layers_of(weights, lstm))
    slots = parts.is_word(graph, concepts)
    x, input_weights = parts.word_input(graph, words, concepts, slots, weights, "word_input")
    if input_weights is not None:
        graph.output("input_weights", input_weights)
    return x, is_real, state, concepts, slots
