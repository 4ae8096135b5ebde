"""Effects of concept words against words taken away by hand, of small models whose weights are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from built_runs import built_run
from ctsan.config import DecodingSettings, load_settings
from ctsan.data.corpus import Clip
from ctsan.inference.captioning import caption_clips
from ctsan.inference.effects import blank_effects, caption_effects
from ctsan.inference.ensemble import AskedBlank, fill_blanks
from ctsan.inference.loaded_model import ClipEncoding, Floats
from ctsan.inference.loading import load_model
from ctsan.model.lstm import State
from ctsan.text.vocabulary import BOS, SPECIALS, Vocabulary
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore

SETTINGS = (
    "model.hidden_dim=12",
    "model.embedding_dim=8",
    "detector.attention_dim=4",
    "detector.num_concepts=3",
    "init.attention_gate=1",
)
SENTENCE = ("a", "dog", "runs")


def make_model(task: str, words: Words, store: FeatureStore, *overrides: str, seed: int = 1) -> Any:
    settings = load_settings("laptop", (*SETTINGS, *overrides))
    run = built_run(task, settings, words, store, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in run.model.named_parameters():
            if "gate" not in name and weights.ndim > 1:
                weights.normal_(std=0.7, generator=generator)
    return load_model(run)


def encode(models: Sequence[Any], store: FeatureStore, clip: Clip) -> list[ClipEncoding]:
    return [model.encode([store[clip.id].maps]) for model in models]


def read_by(model: Any, encoding: ClipEncoding) -> list[str]:
    return [model.concepts.words[number] for number in encoding.concept_words[0].tolist()]


def cut(model: Any, encoding: ClipEncoding, *taken: str) -> ClipEncoding:
    """The encoding with fewer rows of concept words: not zeros in their place, but none at all."""
    kept = [place for place, word in enumerate(read_by(model, encoding)) if word not in taken]
    return replace(
        encoding,
        concepts=encoding.concepts[:, kept],
        concept_words=encoding.concept_words[:, kept],
        confidences=encoding.confidences[:, kept],
    )


@torch.inference_mode()
def next_words(model: Any, encoding: ClipEncoding, words: Sequence[int]) -> Floats:
    """Log-probabilities of the word after others, which are said step by step as the search does it."""
    state = State(torch.from_numpy(encoding.hidden), torch.from_numpy(encoding.cell))
    for word in (BOS, *words):
        scores, state = model.run.model.next_words(
            torch.tensor([word]), torch.from_numpy(encoding.concepts), state
        )
    found: Floats = scores[0].numpy()
    return found


def probability(model: Any, encoding: ClipEncoding, place: int) -> float:
    """Of a word of the sentence, said step by step as the search does it."""
    numbers = model.vocabulary.encode(SENTENCE)
    scores = next_words(model, encoding, numbers[:place])
    return float(np.exp(scores[numbers[place]])) if SENTENCE[place] in model.vocabulary else 0.0


@pytest.mark.parametrize("weighted", ["false", "true"])
@pytest.mark.parametrize("row", [0, 7])
def test_an_effect_is_what_a_word_loses_without_the_concept_word(
    weighted: str, row: int, words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    model = make_model("describe", words, store, f"detector.confidence_weighted={weighted}")
    [encoding] = encode([model], store, clips[row])
    found = caption_effects([model], [encoding], SENTENCE)
    assert found is not None
    assert list(found.concepts) == read_by(model, encoding)
    assert (found.each.shape, found.together.shape) == ((3, 3), (3,))
    for place in range(len(SENTENCE)):
        whole = np.log(probability(model, encoding, place))
        for column, word in enumerate(found.concepts):
            without = np.log(probability(model, cut(model, encoding, word), place))
            assert float(found.each[place, column]) == pytest.approx(whole - without, abs=1e-4)
        none = np.log(probability(model, cut(model, encoding, *found.concepts), place))
        assert float(found.together[place]) == pytest.approx(whole - none, abs=1e-4)
    assert float(np.abs(found.each).max()) > 0.1  # else nothing above could fail


def test_of_several_models_the_effect_is_on_their_mean_probability(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    """One has other words, one knows fewer and one reads no concept words."""
    few = words.vocabulary.words[: len(SPECIALS) + 3]  # a, dog, cat
    smaller = Words(
        Vocabulary(few, (*[0] * len(SPECIALS), 9, 9, 9)),
        replace(words.concepts, candidates=words.concepts.candidates[:2]),
        words.embedding[: len(few)],
    )
    models = [
        make_model("describe", words, store, seed=1),
        make_model("describe", words, store, seed=5),
        make_model("describe", smaller, store, "detector.num_concepts=2", seed=3),
        make_model("describe", words, store, "detector.enabled=false", seed=4),
    ]
    encodings = encode(models, store, clips[2])
    found = caption_effects(models, encodings, SENTENCE)
    assert found is not None
    read = [read_by(model, encoding) for model, encoding in zip(models[:3], encodings[:3], strict=True)]
    assert list(found.concepts) == list(dict.fromkeys(word for own in read for word in own))
    assert len(found.concepts) > len(read[0])

    def mixed(place: int, *taken: str) -> float:
        cuts = [
            encoding if number == 3 else cut(model, encoding, *taken)
            for number, (model, encoding) in enumerate(zip(models, encodings, strict=True))
        ]
        pairs = zip(models, cuts, strict=True)
        return float(np.log(np.mean([probability(*pair, place) for pair in pairs])))

    for place in range(len(SENTENCE)):
        for column, word in enumerate(found.concepts):
            expected = mixed(place) - mixed(place, word)
            assert float(found.each[place, column]) == pytest.approx(expected, abs=1e-4)
        expected = mixed(place) - mixed(place, *found.concepts)
        assert float(found.together[place]) == pytest.approx(expected, abs=1e-4)


def test_log_probabilities_are_those_that_the_sentence_was_said_with(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    """A search of one word gives its log-probability with all concept words."""
    models = [make_model("describe", words, store, seed=seed) for seed in (1, 5)]
    encodings = encode(models, store, clips[4])
    greedy = DecodingSettings(beam=1, max_words=1, length_penalty=0.0)
    [[said]] = caption_clips(models, encodings, greedy)
    found = caption_effects(models, encodings, said.text.split())
    assert found is not None
    none = [cut(model, encoding, *found.concepts) for model, encoding in zip(models, encodings, strict=True)]
    first = [next_words(model, own, ()) for model, own in zip(models, none, strict=True)]
    number = words.vocabulary.encode([said.text])[0]
    without = np.log(np.exp(first).mean(axis=0)[number])
    assert said.log_probability - float(without) == pytest.approx(float(found.together[0]), abs=1e-4)


@pytest.mark.parametrize("task", ["describe", "fill"])
def test_with_both_gates_at_zero_there_is_no_effect(
    task: str, words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    model = make_model(task, words, store)
    encodings = encode([model], store, clips[0])

    def effects(model: Any) -> tuple[Floats, Floats]:
        found = (
            caption_effects([model], encodings, SENTENCE)
            if task == "describe"
            else blank_effects([model], encodings, AskedBlank("a ___ runs", 0), "dog")
        )
        assert found is not None
        return found.each, found.together

    assert all(float(np.abs(each).max()) > 0.01 for each in effects(model))
    gates = [weights for name, weights in model.run.model.named_parameters() if name.endswith("gate")]
    assert len(gates) == 2
    with torch.no_grad():
        for gate in gates:
            gate.zero_()
    for each in effects(load_model(model.run)):
        np.testing.assert_allclose(each, 0, atol=1e-6)


def test_the_effect_on_a_filled_word_is_on_its_mean_probability(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    models = [make_model("fill", words, store, seed=seed) for seed in (1, 5)]
    encodings, asked = encode(models, store, clips[3]), AskedBlank("a ___ runs", 0)

    def log_probability(*taken: str) -> float:
        cuts = [cut(model, own, *taken) for model, own in zip(models, encodings, strict=True)]
        filled = fill_blanks(models, [asked], cuts)
        return float(np.log(filled.probabilities[0, filled.words.index("horse")]))

    found = blank_effects(models, encodings, asked, "horse")
    assert found is not None
    assert found.each.shape == (1, len(found.concepts))
    for column, word in enumerate(found.concepts):
        expected = log_probability() - log_probability(word)
        assert float(found.each[0, column]) == pytest.approx(expected, abs=1e-4)
    expected = log_probability() - log_probability(*found.concepts)
    assert float(found.together[0]) == pytest.approx(expected, abs=1e-4)
    assert float(np.abs(found.each).max()) > 0.05


def test_a_clip_with_fewer_words_and_a_word_that_no_model_knows(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    model = make_model("describe", words, store)
    [encoding] = encode([model], store, clips[0])
    fewer = model.replace_concepts(
        encoding, encoding.concept_words, encoding.confidences * np.array([1, 0, 1], np.float32)
    )
    found = caption_effects([model], [fewer], ("a", "xylophone", "runs"))
    assert found is not None
    assert list(found.concepts) == [read_by(model, encoding)[place] for place in (0, 2)]
    assert np.isfinite(found.each).all()
    assert not found.each[1].any()
    assert found.each[2].any()
    none = model.replace_concepts(encoding, encoding.concept_words, np.zeros_like(encoding.confidences))
    found = caption_effects([model], [none], SENTENCE)
    assert found is not None
    assert (found.concepts, found.each.shape, found.together.tolist()) == ((), (3, 0), [0, 0, 0])


@pytest.mark.parametrize(
    "overrides",
    [("detector.enabled=false",), ("attention.input=false", "attention.output=false")],
)
def test_a_model_that_reads_no_concept_words_has_no_effects(
    overrides: tuple[str, ...], words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    model = make_model("describe", words, store, *overrides)
    assert caption_effects([model], encode([model], store, clips[0]), SENTENCE) is None
    model = make_model("fill", words, store, *overrides)
    encodings = encode([model], store, clips[0])
    assert blank_effects([model], encodings, AskedBlank("a ___ runs", 0), "dog") is None
