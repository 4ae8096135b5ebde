"""Effects of concept words against words taken away by hand, of small models whose weights are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ctsan.config import DecodingSettings, load_settings
from ctsan.data.corpus import Clip
from ctsan.inference.effects import blank_effects, caption_effects
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.tasks.blank import AskedBlank, fill
from ctsan.tasks.building import build_model
from ctsan.tasks.captioning import caption_clips
from ctsan.tasks.loaded_model import LoadedModel
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


def make_member(
    task: str, words: Words, store: FeatureStore, *overrides: str, seed: int = 1
) -> LoadedModel[Any]:
    settings = load_settings("laptop", (*SETTINGS, *overrides))
    model = build_model(task, settings, words, grid=store.grid, channels=store.channels, seed=seed).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "gate" not in name and weights.ndim > 1:
                weights.normal_(std=0.7, generator=generator)
    return LoadedModel(model, words, settings.model.max_frames, settings.decoding.max_words)


def encode(members: Sequence[LoadedModel[Any]], store: FeatureStore, clip: Clip) -> list[ClipEncoding]:
    return [member.encode([store[clip.id].maps]) for member in members]


def read_by(member: LoadedModel[Any], encoding: ClipEncoding) -> list[str]:
    return [member.words.concepts.words[number] for number in encoding.concept_words[0].tolist()]


def cut(member: LoadedModel[Any], encoding: ClipEncoding, *taken: str) -> ClipEncoding:
    """The encoding with fewer rows of concept words: not zeros in their place, but none at all."""
    kept = [place for place, word in enumerate(read_by(member, encoding)) if word not in taken]
    return encoding._replace(
        concepts=encoding.concepts[:, kept],
        concept_words=encoding.concept_words[:, kept],
        confidences=encoding.confidences[:, kept],
    )


@torch.inference_mode()
def probability(member: LoadedModel[Any], encoding: ClipEncoding, place: int) -> float:
    """Of a word of the sentence, said step by step as the search does it."""
    state, last = encoding.state, BOS
    numbers = member.words.vocabulary.encode(SENTENCE)
    for number in numbers[: place + 1]:
        scores, state = member.model.next_words(torch.tensor([last]), encoding.concepts, state)
        last = number
    known = SENTENCE[place] in member.words.vocabulary
    return float(scores[0, last].exp()) if known else 0.0


@pytest.mark.parametrize("weighted", ["false", "true"])
@pytest.mark.parametrize("row", [0, 7])
def test_an_effect_is_what_a_word_loses_without_the_concept_word(
    weighted: str, row: int, words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    member = make_member("describe", words, store, f"detector.confidence_weighted={weighted}")
    [encoding] = encode([member], store, clips[row])
    found = caption_effects([member], [encoding], SENTENCE)
    assert found is not None
    assert list(found.concepts) == read_by(member, encoding)
    assert (found.each.shape, found.together.shape) == ((3, 3), (3,))
    for place in range(len(SENTENCE)):
        whole = np.log(probability(member, encoding, place))
        for column, word in enumerate(found.concepts):
            without = np.log(probability(member, cut(member, encoding, word), place))
            assert float(found.each[place, column]) == pytest.approx(whole - without, abs=1e-4)
        none = np.log(probability(member, cut(member, encoding, *found.concepts), place))
        assert float(found.together[place]) == pytest.approx(whole - none, abs=1e-4)
    assert float(found.each.abs().max()) > 0.1  # else nothing above could fail


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
    members = [
        make_member("describe", words, store, seed=1),
        make_member("describe", words, store, seed=5),
        make_member("describe", smaller, store, "detector.num_concepts=2", seed=3),
        make_member("describe", words, store, "detector.enabled=false", seed=4),
    ]
    encodings = encode(members, store, clips[2])
    found = caption_effects(members, encodings, SENTENCE)
    assert found is not None
    read = [read_by(member, encoding) for member, encoding in zip(members[:3], encodings[:3], strict=True)]
    assert list(found.concepts) == list(dict.fromkeys(word for own in read for word in own))
    assert len(found.concepts) > len(read[0])

    def mixed(place: int, *taken: str) -> float:
        cuts = [
            encoding if number == 3 else cut(member, encoding, *taken)
            for number, (member, encoding) in enumerate(zip(members, encodings, strict=True))
        ]
        pairs = zip(members, cuts, strict=True)
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
    members = [make_member("describe", words, store, seed=seed) for seed in (1, 5)]
    encodings = encode(members, store, clips[4])
    greedy = DecodingSettings(beam=1, max_words=1, length_penalty=0.0)
    [[said]] = caption_clips(members, encodings, greedy)
    found = caption_effects(members, encodings, said.text.split())
    assert found is not None
    none = [
        cut(member, encoding, *found.concepts) for member, encoding in zip(members, encodings, strict=True)
    ]
    with torch.inference_mode():
        first = [
            member.model.next_words(torch.tensor([BOS]), own.concepts, own.state)[0][0]
            for member, own in zip(members, none, strict=True)
        ]
    number = words.vocabulary.encode([said.text])[0]
    without = torch.stack(first).exp().mean(dim=0)[number].log()
    assert said.log_probability - float(without) == pytest.approx(float(found.together[0]), abs=1e-4)


@pytest.mark.parametrize("task", ["describe", "fill"])
def test_with_both_gates_at_zero_there_is_no_effect(
    task: str, words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    member = make_member(task, words, store)
    encodings = encode([member], store, clips[0])

    def effects() -> tuple[Tensor, Tensor]:
        found = (
            caption_effects([member], encodings, SENTENCE)
            if task == "describe"
            else blank_effects([member], encodings, AskedBlank("a ___ runs", 0), "dog")
        )
        assert found is not None
        return found.each, found.together

    assert all(float(each.abs().max()) > 0.01 for each in effects())
    gates = [weights for name, weights in member.model.named_parameters() if name.endswith("gate")]
    assert len(gates) == 2
    with torch.no_grad():
        for gate in gates:
            gate.zero_()
    for each in effects():
        np.testing.assert_allclose(each, 0, atol=1e-6)


def test_the_effect_on_a_filled_word_is_on_its_mean_probability(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    members = [make_member("fill", words, store, seed=seed) for seed in (1, 5)]
    encodings, asked = encode(members, store, clips[3]), AskedBlank("a ___ runs", 0)

    def log_probability(*taken: str) -> float:
        cuts = [cut(member, own, *taken) for member, own in zip(members, encodings, strict=True)]
        filled = fill(members, [asked], cuts)
        return float(filled.probabilities[0, filled.words.index("horse")].log())

    found = blank_effects(members, encodings, asked, "horse")
    assert found is not None
    assert found.each.shape == (1, len(found.concepts))
    for column, word in enumerate(found.concepts):
        expected = log_probability() - log_probability(word)
        assert float(found.each[0, column]) == pytest.approx(expected, abs=1e-4)
    expected = log_probability() - log_probability(*found.concepts)
    assert float(found.together[0]) == pytest.approx(expected, abs=1e-4)
    assert float(found.each.abs().max()) > 0.05


def test_a_clip_with_fewer_words_and_a_word_that_no_model_knows(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    member = make_member("describe", words, store)
    [encoding] = encode([member], store, clips[0])
    fewer = member.model.clip_encoder.replace_concepts(
        encoding, encoding.concept_words, encoding.confidences * torch.tensor([1.0, 0.0, 1.0])
    )
    found = caption_effects([member], [fewer], ("a", "xylophone", "runs"))
    assert found is not None
    assert list(found.concepts) == [read_by(member, encoding)[place] for place in (0, 2)]
    assert found.each.isfinite().all()
    assert not found.each[1].any()
    assert found.each[2].any()
    none = member.model.clip_encoder.replace_concepts(
        encoding, encoding.concept_words, torch.zeros_like(encoding.confidences)
    )
    found = caption_effects([member], [none], SENTENCE)
    assert found is not None
    assert (found.concepts, found.each.shape, found.together.tolist()) == ((), (3, 0), [0, 0, 0])


@pytest.mark.parametrize(
    "overrides",
    [("detector.enabled=false",), ("attention.input=false", "attention.output=false")],
)
def test_a_model_that_reads_no_concept_words_has_no_effects(
    overrides: tuple[str, ...], words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    member = make_member("describe", words, store, *overrides)
    assert caption_effects([member], encode([member], store, clips[0]), SENTENCE) is None
    member = make_member("fill", words, store, *overrides)
    encodings = encode([member], store, clips[0])
    assert blank_effects([member], encodings, AskedBlank("a ___ runs", 0), "dog") is None
