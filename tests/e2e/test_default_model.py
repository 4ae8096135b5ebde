"""The model that the package carries, on clips that it has never seen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from commands import ctsan as real_command
from ctsan.figures.traces import choose_traces
from ctsan.inference.onnx_model import OnnxModel
from ctsan.inference.predictor import Predictor
from ctsan.runs.pack_folder import DEFAULT_FOLDER

CLIPS = Path(__file__).parents[2] / "examples/clips"
# What people would say of them.
SAID = {
    "cat.mp4": "a cat is looking at the camera",
    "coffee.mp4": "a cup of coffee on a table",
    "astronaut.mp4": "a woman in a space suit is smiling",
    "rocket.mp4": "a rocket is launched into the sky",
    "rabbit.mp4": "a cartoon animal on the grass",
}


@pytest.fixture(scope="module")
def model() -> Predictor:
    return Predictor.load()


def test_it_is_small_enough_to_carry() -> None:
    assert sum(file.stat().st_size for file in DEFAULT_FOLDER.rglob("*")) < 25e6


def test_it_has_a_sentence_of_its_own_for_each_clip(model: Predictor) -> None:
    captions = [model.describe(CLIPS / name).caption for name in SAID]
    assert all(len(caption.split()) >= 3 for caption in captions)
    assert len(set(captions)) == len(SAID)


def test_the_score_of_a_caption_is_the_one_that_decided(model: Predictor) -> None:
    """The likeliest sentence is not the one that is said: the joint embedding reranks."""
    is_likeliest = []
    for name in SAID:
        captions = model.describe(CLIPS / name, n_best=5).captions
        assert [each.score for each in captions] == sorted((each.score for each in captions), reverse=True)
        is_likeliest.append(captions[0] == max(captions, key=lambda each: each.log_probability))
    assert not all(is_likeliest)


def test_its_traces_belong_to_the_sentence_that_it_says(model: Predictor) -> None:
    """One run says it, and has the traces."""
    for name in SAID:
        tracing = model.trace(CLIPS / name)
        assert tracing.caption == model.describe(CLIPS / name).captions[0]
        assert tracing.run_name == "describe"
        assert [Path(each).name for each in tracing.captioned_by] == ["describe"]
        assert tracing.output_weights is not None
        assert len(tracing.output_weights) == len(tracing.caption.text.split())


def test_its_traces_stand_for_what_they_raise(model: Predictor) -> None:
    """The scores of the probe and of the traces are added: some words are sure against the traces."""
    lowered = 0
    for name in SAID:
        tracing = model.trace(CLIPS / name)
        assert tracing.has_probe
        traced = model.models[0]
        assert isinstance(traced, OnnxModel)
        candidates = list(traced.concepts.words)
        bias = traced.run.weights["clip_encoder.detector.name.bias"]
        scores = tracing.shares.sum(axis=1) + [bias[candidates.index(each.word)] for each in tracing.raised]
        probe = np.log(tracing.probe_confidences) - np.log1p(-tracing.probe_confidences)
        sure = np.array([each.confidence for each in tracing.raised])
        np.testing.assert_allclose(sure, 1 / (1 + np.exp(-scores - probe)), atol=1e-4)
        shown = choose_traces(tracing)
        assert shown
        assert all(trace.share > 0 for trace in shown)
        totals = {
            each.word: shares.sum() for each, shares in zip(tracing.raised, tracing.shares, strict=True)
        }
        assert all(totals[trace.concept.word] > 0 for trace in shown if trace.concept)
        lowered += sum(total < 0 for total in totals.values())
    assert lowered > 5


def test_its_captions_owe_their_words_to_concept_words(model: Predictor) -> None:
    """The largest effect of one concept word on a word that is said, in nats: .26 is 1.3 times as likely."""
    largest = []
    for name in SAID:
        effects = model.describe(CLIPS / name, attention=True).effects
        assert effects is not None
        largest.append(float(effects.each.max()))
    assert min(largest) > 0.26
    assert max(largest) > 1


def test_it_knows_a_kitchen_when_it_sees_one(model: Predictor) -> None:
    seen = {concept.word for concept in model.concepts(CLIPS / "coffee.mp4")}
    assert {"coffee", "cup", "table"} <= seen


def test_it_chooses_what_people_would_say(model: Predictor) -> None:
    sentences = list(SAID.values())
    right = [model.choose(CLIPS / name, sentences).choice == place for place, name in enumerate(SAID)]
    assert sum(right) >= 4  # by chance one


@pytest.mark.parametrize("query", ["a cup of coffee on a table", "an espresso"])
def test_no_concept_words_stand_beside_a_rank_that_they_had_no_part_in(model: Predictor, query: str) -> None:
    """The joint embedding decides, and reads none."""
    found = model.rank(query, [CLIPS / name for name in SAID], attention=True)
    assert Path(found.clips[0].clip).name == "coffee.mp4"
    for each in found.clips:
        assert each.concepts == ()
        assert all(weights.input_weights is None for weights in each.attention)


def test_it_finds_the_clip_that_a_sentence_is_about(model: Predictor) -> None:
    clips = [CLIPS / name for name in SAID]
    first = [Path(model.rank(said, clips).clips[0].clip).name for said in SAID.values()]
    assert sum(name == found for name, found in zip(SAID, first, strict=True)) >= 4


def test_a_misspelt_query_is_ranked_as_it_was_meant() -> None:
    clips = [CLIPS / name for name in SAID]
    ranked = {
        query: real_command("rank", query, *clips, "--json") for query in ("a cofee cup", "a coffee cup")
    }
    typed, meant = (json.loads(each.stdout) for each in ranked.values())
    assert typed["clips"] == meant["clips"]
    assert typed["searched_for"] == meant["query"]
    assert "Searched for: a coffee cup (read cofee as coffee)" in ranked["a cofee cup"].stderr
    assert "Searched for" not in ranked["a coffee cup"].stderr
