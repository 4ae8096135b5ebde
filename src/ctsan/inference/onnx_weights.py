"""Whether a run has ONNX graphs, and whether its weights are those that the graphs need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ctsan.config import Settings
from ctsan.errors import RunError
from ctsan.io.onnx_graph import Array
from ctsan.runs.trained_run import TrainedRun
from ctsan.runs.weights import WEIGHTS_FILE

_PIECES = 2  # of the maxout: `RetrievalModel`
_PROBE_DIM = 1024  # hidden units: `MLPProbe`
_PHRASE_RANK = 64  # of the regression: `PhraseProbe`
_MOST_LETTERS = 400  # of a message about weights that do not fit

Shape = tuple[int, ...]
Shapes = Iterator[tuple[str, Shape]]


class _Sizes(NamedTuple):
    hidden: int  # D
    layers: int
    embedding: int  # E
    words: int
    candidates: int  # V
    channels: int  # C
    traces: int  # L


def has_graphs(task: str, settings: Settings) -> bool:
    """Whether a run is of a model with ONNX graphs: all of ctsan's tasks, but not the paper's baselines."""
    if task == "embed":
        return True
    detector = settings.detector
    is_own = task in ("describe", "fill", "choose", "rank") and settings.model.decoder == "semantic"
    return is_own and (not detector.enabled or detector.kind == "traces")


def check_fit(run: TrainedRun) -> None:
    """Check the weights of a run against its settings, words and features.

    Raises:
        RunError: tensors are missing, too many, or of another shape or type, or their numbers are impossible.
        WordsError: the words are missing or damaged.
    """
    file = run.folder / WEIGHTS_FILE
    sizes = _Sizes(
        hidden=run.settings.model.hidden_dim,
        layers=run.settings.model.num_layers,
        embedding=run.words.embedding.shape[1],
        words=len(run.words.vocabulary),
        candidates=len(run.words.concepts.words),
        channels=run.recipe.channels,
        traces=run.recipe.grid[0] * run.recipe.grid[1],
    )
    expected = dict(_embed(run.settings, sizes) if run.task == "embed" else _language(run, sizes))
    if faults := list(_misfits(expected, run.weights)):
        what = ". ".join(faults)
        what = what if len(what) <= _MOST_LETTERS else f"{what[:_MOST_LETTERS]}…"
        raise RunError(
            f"{file}: its weights do not fit the model: {what}. Build the model with the settings of the run."
        )
    candidates = np.array(run.words.vocabulary.encode(run.words.concepts.words))
    if wrong := list(_impossible(run.weights, candidates, run.settings.retrieval.sketch_dim)):
        raise RunError(
            f"{file}: it is damaged ({', '.join(wrong)} does not fit the words or the settings). Put it back "
            "from a copy, or train again in another folder."
        )


def _misfits(expected: Mapping[str, Shape], weights: Mapping[str, Array]) -> Iterator[str]:
    if missing := [name for name in expected if name not in weights]:
        yield f"Missing key(s): {', '.join(missing)}"
    if unexpected := [name for name in weights if name not in expected]:
        yield f"Unexpected key(s): {', '.join(unexpected)}"
    for name, array in weights.items():
        if name in expected and array.shape != expected[name]:
            yield f"size mismatch for {name}: {list(array.shape)}, and {list(expected[name])} are needed"
        elif name in expected and array.dtype != (np.int64 if _is_index(name) else np.float32):
            yield f"{name} is {array.dtype}"


def _is_index(name: str) -> bool:
    return name.rpartition(".")[2] in ("candidate_words", "first_hash", "second_hash", "keys")


def _impossible(weights: Mapping[str, Array], candidates: Array, sketch_dim: int) -> Iterator[str]:
    """Tensors that index others and are out of range, or that numbers are divided by and are not positive."""
    for name, array in weights.items():
        match name.rpartition(".")[2]:
            case "candidate_words":
                is_possible = np.array_equal(array, candidates)
            case "scale" | "score_scale" | "channel_scales":
                is_possible = bool((array > 0).all())
            case "first_hash" | "second_hash":
                is_possible = bool(((array >= 0) & (array < sketch_dim)).all())
            case _:
                is_possible = True
        if not is_possible:
            yield name


def _language(run: TrainedRun, sizes: _Sizes) -> Shapes:
    settings, dim = run.settings, sizes.hidden
    attention = settings.attention
    has_concepts = settings.detector.enabled
    prefix = "decode." if run.task == "describe" else ""
    yield from _clip_encoder(settings, sizes)
    yield from _word_input(f"{prefix}word_input", sizes, has_attention=attention.input and has_concepts)
    if run.task == "fill":
        for lstm in ("read_forwards", "read_backwards")[: 1 + settings.model.bidirectional]:
            yield from _lstm(lstm, dim, sizes)
        yield from _linear("join", (1 + settings.model.bidirectional) * dim, dim)
    else:
        yield from _lstm(f"{prefix}lstm", dim, sizes)
    if run.task in ("describe", "fill"):
        if attention.output and has_concepts:
            yield f"{prefix}output_attention.relate.weight", (dim, sizes.embedding)
            yield f"{prefix}output_attention.gate", (dim,)
        yield from _linear(f"{prefix}say", dim, sizes.words)
        return
    if run.task == "choose":
        yield from _linear("align", dim, dim)
        yield "rate.weight", (1, dim)
    else:
        retrieval = settings.retrieval
        yield from (
            (f"pool.{side}_{part}", (dim,)) for side in ("first", "second") for part in ("hash", "sign")
        )
        yield "join.weight", (_PIECES * retrieval.joint_dim, retrieval.sketch_dim)
        yield "rate.weight", (1, retrieval.joint_dim)
    yield from _scalars("score_mean", "score_scale")


def _clip_encoder(settings: Settings, sizes: _Sizes) -> Shapes:
    encoder, detector, dim = "clip_encoder", settings.detector, sizes.hidden
    kernel = settings.model.region_kernel
    yield from _embedding_and_channels(sizes)
    yield f"{encoder}.reduce.conv.weight", (dim, sizes.channels, kernel, kernel)
    if detector.prior_weight:
        yield f"{encoder}.frequencies", (sizes.candidates,)
    if settings.model.use_video:
        yield from _lstm(f"{encoder}.encode_video.lstm", dim, sizes)
    if not detector.enabled:
        return
    attend, name_dim = f"{encoder}.detector.attend", dim if detector.tie_traces else sizes.traces * dim
    yield f"{attend}.first.weight", (detector.attention_dim, dim, 3, 3)
    yield f"{attend}.first_bias", (detector.attention_dim, 1, 1)
    yield f"{attend}.second.weight", (1, detector.attention_dim, 3, 3)
    yield from _lstm(f"{encoder}.detector.trace", dim, sizes)
    yield from _linear(f"{encoder}.detector.name", name_dim, sizes.candidates)
    if detector.probe == "mlp":
        yield f"{encoder}.probe.centre", (sizes.channels,)
        yield f"{encoder}.probe.scale", (sizes.channels,)
        yield from _linear(f"{encoder}.probe.hidden", sizes.channels, _PROBE_DIM)
        yield from _linear(f"{encoder}.probe.name", _PROBE_DIM, sizes.candidates)


def _embed(settings: Settings, sizes: _Sizes) -> Shapes:
    retrieval = settings.retrieval
    yield from _embedding_and_channels(sizes)
    yield "weigh.weight", (sizes.words, 1)
    yield "from_words.weight", (retrieval.joint_dim, sizes.embedding)
    yield from _linear("from_clip", sizes.channels, retrieval.joint_dim)
    if retrieval.hidden_dim:
        yield from _linear("perceptron.0", sizes.channels, retrieval.hidden_dim)
        yield "perceptron.3.weight", (retrieval.joint_dim, retrieval.hidden_dim)
    if retrieval.phrases:
        yield from ((f"phrases.{name}", (retrieval.phrases,)) for name in ("keys", "rarity", "often"))
        yield "phrases.phrase", (retrieval.phrases, _PHRASE_RANK)
        yield "phrases.clip", (_PHRASE_RANK, sizes.channels)
        yield "phrases.unheard", ()
    yield from _scalars("match_threshold", "match_growth", "match_clips", "match_accuracy")
    yield from _scalars("score_mean", "score_scale")


def _embedding_and_channels(sizes: _Sizes) -> Shapes:
    yield "clip_encoder.embedding.weight", (sizes.words, sizes.embedding)
    yield "clip_encoder.candidate_words", (sizes.candidates,)
    yield "clip_encoder.channel_means", (sizes.channels,)
    yield "clip_encoder.channel_scales", (sizes.channels,)


def _word_input(prefix: str, sizes: _Sizes, *, has_attention: bool) -> Shapes:
    if not has_attention:
        yield f"{prefix}.project.weight", (sizes.hidden, sizes.embedding)
        return
    yield f"{prefix}.attention.relate", (sizes.embedding, sizes.embedding)
    yield f"{prefix}.attention.gate", (sizes.embedding,)
    yield f"{prefix}.attention.project.weight", (sizes.hidden, sizes.embedding)


def _lstm(prefix: str, input_dim: int, sizes: _Sizes) -> Shapes:
    dim = sizes.hidden
    for number in range(sizes.layers):
        layer = f"{prefix}.layers.{number}"
        yield f"{layer}.from_input.weight", (4 * dim, dim if number else input_dim)
        yield f"{layer}.from_hidden.weight", (4 * dim, dim)
        yield from ((f"{layer}.norm_input.{part}", (4 * dim,)) for part in ("weight", "bias"))
        yield f"{layer}.norm_hidden.weight", (4 * dim,)
        yield from ((f"{layer}.norm_cell.{part}", (dim,)) for part in ("weight", "bias"))


def _linear(name: str, inputs: int, outputs: int) -> Shapes:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _scalars(*names: str) -> Iterable[tuple[str, Shape]]:
    return ((name, ()) for name in names)
