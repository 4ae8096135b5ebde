"""ONNX Runtime gives the numbers of PyTorch, for every kind of model that it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import onnx
import pytest
import torch

from built_runs import SMALL, BuiltRun, built_run, run_of
from ctsan.config import DecodingSettings, load_settings
from ctsan.data.corpus import Clip
from ctsan.errors import RunError, UsageError
from ctsan.inference import onnx_graphs
from ctsan.inference.captioning import caption_clips
from ctsan.inference.ensemble import word_ids
from ctsan.inference.loaded_model import LoadedModel
from ctsan.inference.loading import load_model
from ctsan.inference.onnx_model import OnnxModel
from ctsan.inference.torch_model import TorchModel, load_torch_model
from ctsan.io.onnx_graph import Graph
from ctsan.tasks.building import fit_probes
from ctsan.text.vocabulary import BOS
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore
from inference.test_torch_model import arrays_of

TOLERANCE = 1e-4

NO_WORDS = ("detector.enabled=false", "attention.input=false", "attention.output=false")
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "as by default": ("describe", ()),
    "the paper's": (
        "describe",
        (
            "detector.probe=none",
            "detector.prior_weight=0",
            "detector.tie_traces=false",
            "model.region_kernel=3",
        ),
    ),
    "one layer": ("describe", ("model.num_layers=1",)),
    "weighted words": ("describe", ("detector.confidence_weighted=true",)),
    "without input attention": ("describe", ("attention.input=false",)),
    "without output attention": ("describe", ("attention.output=false",)),
    "without concept words": ("describe", NO_WORDS),
    "without video": ("describe", ("model.use_video=false",)),
    "blank": ("fill", ()),
    "blank, one direction, no attention": ("fill", ("model.bidirectional=false", *NO_WORDS)),
    "choice": ("choose", ()),
    "choice without concept words": ("choose", NO_WORDS),
    "retrieval": ("rank", ()),
    "embedding": ("embed", ("retrieval.phrases=40", "retrieval.hidden_dim=16")),
    "embedding, linear": ("embed", ()),
}


@pytest.fixture(params=KINDS)
def run(request: pytest.FixtureRequest, words: Words, store: FeatureStore, clips: list[Clip]) -> BuiltRun:
    """A run whose weights are all other than at initialisation, where some have no effect."""
    task, overrides = KINDS[request.param]
    built = built_run(task, load_settings("laptop", (*SMALL, *overrides)), words, store, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, tensor in built.model.state_dict().items():
            if tensor.is_floating_point() and not name.startswith("phrases."):
                noise = torch.rand(tensor.shape, generator=generator)
                tensor += noise / 2 if name.endswith(("scale", "scales", "frequencies")) else noise - 0.5
    fit_probes(built.model, clips, store, words, keep_concept_probe=True)  # the phrase probe
    return built


def both(run: BuiltRun) -> tuple[Any, Any]:
    own, other = load_model(run), load_torch_model(run)
    assert isinstance(own, OnnxModel)
    assert isinstance(other, TorchModel)
    return own, other


def sentences_of(model: LoadedModel, clips: Sequence[Clip]) -> Any:
    return word_ids(model, [caption for clip in clips for caption in clip.captions][:7])


def close(found: Any, expected: Any, what: str = "") -> None:
    assert (found is None) == (expected is None), what
    if expected is not None:
        assert found.shape == expected.shape, what
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE, err_msg=what)


def test_clips_are_encoded_as_by_pytorch(run: BuiltRun, clips: list[Clip], store: FeatureStore) -> None:
    maps = [store[clip.id].maps[: 3 + 2 * number] for number, clip in enumerate(clips[:3])]  # and padded
    own, other = both(run)
    found, expected = (arrays_of(model.encode(maps)) for model in (own, other))
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        if name == "attention":  # that of padding is of no use
            for row, clip in enumerate(maps):
                close(found[name][row, : len(clip)], array[row, : len(clip)], name)
        else:
            close(found[name], array, name)
    properties = ("has_detector", "has_traces", "reads_concepts")
    assert [getattr(own, name) for name in properties] == [getattr(other, name) for name in properties]
    close(own.prior, other.prior)


def test_questions_are_answered_as_by_pytorch(run: BuiltRun, clips: list[Clip], store: FeatureStore) -> None:
    own, other = both(run)
    encoding = other.encode([store[clip.id].maps for clip in clips[:7]])
    ids = sentences_of(own, clips)
    match run.task:
        case "describe":
            read = [model.read_caption(np.insert(ids, 0, BOS, axis=1), encoding) for model in (own, other)]
            for found, expected in zip(*read, strict=True):
                close(found, expected)
            decoding = DecodingSettings(beam=4, max_words=6)
            captions = [caption_clips([model], [encoding], decoding, n_best=3) for model in (own, other)]
            for ours, others in zip(*captions, strict=True):
                assert [each.text for each in ours] == [each.text for each in others]
                close(np.array([each.score for each in ours]), np.array([each.score for each in others]))
        case "fill":
            blanks = np.array([0, 1, 2, 0, 1, 2, 0])
            read = [model.read_blanks(ids, blanks, encoding) for model in (own, other)]
            for found, expected in zip(*read, strict=True):
                close(found, expected)
        case _:
            close(own.score_all(ids, encoding), other.score_all(ids, encoding))
            for found, expected in zip(*(m.score_each(ids, encoding) for m in (own, other)), strict=True):
                close(found, expected)
            assert own.score_scale == pytest.approx(other.score_scale)
    if run.settings.detector.enabled and run.task != "embed":
        words, sure = encoding.concept_words[:, ::-1].copy(), encoding.confidences.copy()
        sure[:, 1] = 0
        replaced = [arrays_of(model.replace_concepts(encoding, words, sure)) for model in (own, other)]
        for name in ("concepts", "concept words", "confidences"):
            close(replaced[0][name], replaced[1][name], name)
        close(own.trace_shares(encoding.detection, [2, 0]), other.trace_shares(encoding.detection, [2, 0]))


@pytest.mark.parametrize("run", ["embedding", "embedding, linear"], indirect=True)
def test_joint_embeddings_are_those_of_pytorch(run: BuiltRun, clips: list[Clip], store: FeatureStore) -> None:
    own, other = both(run)
    encoding = other.encode([store[clip.id].maps for clip in clips[:3]])
    ids = sentences_of(own, clips)
    close(own.embed_clips(encoding), other.embed_clips(encoding))
    close(own.embed_sentences(ids), other.embed_sentences(ids))
    expected = other.expected_cider(ids[:6].reshape(3, 2, -1), encoding)
    close(own.expected_cider(ids[:6].reshape(3, 2, -1), encoding), expected)
    assert (expected is not None and bool(expected.any())) == bool(run.settings.retrieval.phrases)
    assert (own.joint_dim, own.match_accuracy) == (other.joint_dim, other.match_accuracy)
    assert own.match_score(1000) == pytest.approx(other.match_score(1000))


def test_no_clips_or_sentences_have_no_scores(words: Words, store: FeatureStore, clips: list[Clip]) -> None:
    settings = load_settings("laptop", SMALL)
    model = cast("Any", load_model(built_run("choose", settings, words, store, seed=0)))
    encoding = model.encode([store[clips[0].id].maps])
    assert model.score_all(np.zeros((0, 4), np.int64), encoding).shape == (0, 1)
    assert model.score_all(np.ones((2, 4), np.int64), encoding.of([])).shape == (2, 0)


def graphs_of(run: BuiltRun) -> list[Graph]:
    weights, dim = run.weights, run.settings.model.hidden_dim
    match run.task:
        case "describe":
            return [onnx_graphs.caption_step(weights, hidden_dim=dim)]
        case "fill":
            return [onnx_graphs.blank_reader(weights, hidden_dim=dim)]
        case "choose":
            return [onnx_graphs.choice_reader(weights, hidden_dim=dim)]
        case "rank":
            return [
                onnx_graphs.query_reader(weights, hidden_dim=dim),
                onnx_graphs.joint_scorer(weights, pieces=2),
            ]
    return [onnx_graphs.clip_embedder(weights), onnx_graphs.sentence_embedder(weights)]


def test_graphs_are_valid_onnx_without_their_weights(run: BuiltRun) -> None:
    """The official package reads what ctsan writes, once the weights are in it."""
    for graph in graphs_of(run):
        content = graph.serialize()
        assert len(content) < 50_000
        model = onnx.load_from_string(content)
        for tensor in model.graph.initializer:
            if tensor.name in graph.weights:
                tensor.CopyFrom(onnx.numpy_helper.from_array(graph.weights[tensor.name], tensor.name))
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        assert all(output.type.tensor_type.elem_type for output in inferred.graph.output)


def test_weights_of_another_size_are_refused(words: Words, store: FeatureStore) -> None:
    small, large = (
        built_run(
            "describe", load_settings("laptop", (*SMALL, f"model.hidden_dim={dim}")), words, store, seed=0
        )
        for dim in (12, 16)
    )
    model = load_model(run_of("describe", large.settings, words, store, small.model))
    with pytest.raises(RunError, match="do not fit the model: size mismatch for .*"):
        model.load()


def test_a_baseline_without_pytorch_names_the_extra(
    words: Words, store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings("laptop", (*SMALL, "model.decoder=s2vt", "detector.enabled=false"))
    run = built_run("describe", settings, words, store, seed=0)
    assert isinstance(load_model(run), TorchModel)
    monkeypatch.setitem(__import__("sys").modules, "ctsan.inference.torch_model", None)
    with pytest.raises(UsageError, match=r"pip install 'ctsan\[train\]'"):
        load_model(run)
