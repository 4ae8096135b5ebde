"""Answers with other concept words in place of a clip's own, of a small model whose weights are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ctsan.config import load_settings
from ctsan.data.corpus import BlankItem, ChoiceItem, Clip, Corpus, Item, ItemTask, QueryItem
from ctsan.model.clip_encoder import ClipEncoding, reads_concepts
from ctsan.tasks.building import build_model, build_task
from ctsan.tasks.concepts import measure_concepts
from ctsan.tasks.registry import task_spec
from ctsan.tasks.reliance import (
    SOURCES,
    answers_by_source,
    measure_reliance,
    oracle_words,
    permute_clips,
)
from ctsan.tasks.report import report
from ctsan.tasks.task import Measured
from ctsan.text.concepts import Concept, Concepts
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore

TASKS: tuple[str, ...] = ("describe", "fill", "choose", "rank")
SETTINGS = (
    "model.hidden_dim=12",
    "model.embedding_dim=8",
    "detector.attention_dim=4",
    "detector.num_concepts=3",
    "retrieval.sketch_dim=32",
    "retrieval.joint_dim=8",
    "decoding.max_words=5",
    "init.attention_gate=1",
)


def items_of(clips: Sequence[Clip]) -> dict[ItemTask, tuple[Item, ...]]:
    """Two blanks, one choice and one query about each clip."""
    sentences = [clip.captions[0] for clip in clips]
    return {
        "fill": tuple(
            item
            for clip in clips
            for animal, deed in [clip.id.split()]
            for item in (
                BlankItem(clip.id, f"a _____ {deed}", animal),
                BlankItem(clip.id, f"a {animal} _____", deed),
            )
        ),
        "choose": tuple(
            ChoiceItem(clip.id, tuple(sentences[place - 4 : place + 1] or sentences[:5]), place % 5)
            for place, clip in enumerate(clips)
        ),
        "rank": tuple(QueryItem(sentence, clip.id) for sentence, clip in zip(sentences, clips, strict=True)),
    }


def make(kind: str, words: Words, clips: Sequence[Clip], store: FeatureStore, *overrides: str) -> Any:
    """A task whose model has large weights: its answers depend on the clip and on its words."""
    settings = load_settings("laptop", (*SETTINGS, *overrides))
    items: Any = {(task, "train"): some for task, some in items_of(clips).items()}
    corpus = Corpus("animals", Path(), "own", tuple(clips), items)
    model = build_model(kind, settings, words, grid=store.grid, channels=store.channels, seed=1).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "clip_encoder.detector" not in name and "gate" not in name and weights.ndim > 1:
                weights.normal_(std=0.7, generator=generator)
    return build_task(kind, settings, words, store, corpus, model=model, split="train")


@pytest.mark.parametrize("kind", TASKS)
def test_the_clips_own_words_give_what_is_measured_without_reliance(
    kind: str, words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    task = make(kind, words, clips, store)
    measured: Measured = task.measure()
    found = measure_reliance(kind, task)
    assert found is not None
    assert tuple(found.sources) == SOURCES
    assert found.metric == task_spec(kind).primary_metric
    assert (found.clips, found.answers) == (12, 24 if kind == "fill" else 12)
    own = found.sources["own"]
    assert own.value == pytest.approx(measured.metrics[found.metric])
    encoder, max_frames = task.model.clip_encoder, task.clips.max_frames
    concepts = measure_concepts(encoder, words.concepts, clips, store, max_frames=max_frames)
    plain = report(kind, measured, concepts, clips, java=None)
    assert (own.value, own.interval) == (plain.metrics[found.metric], plain.intervals[found.metric])
    assert (own.difference, own.changed) == (None, 0)
    assert answers_by_source(task, ["own"])["own"] == measured.answers


@pytest.mark.parametrize("kind", TASKS)
def test_differences_and_changed_answers_are_those_of_the_answers(
    kind: str, words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    task = make(kind, words, clips, store)
    answers, found = answers_by_source(task, SOURCES), measure_reliance(kind, task)
    assert found is not None
    key = {"describe": None, "fill": "answer", "choose": "choice", "rank": "first"}[kind]
    shown = {
        source: [
            one if key is None else one[key]
            for said in own.values()
            for one in ([said] if key is None else said)
        ]
        for source, own in answers.items()
    }
    changes = 0.0
    for source, score in found.sources.items():
        differ = [mine != other for mine, other in zip(shown["own"], shown[source], strict=True)]
        assert score.changed == pytest.approx(sum(differ) / len(differ))
        changes += score.changed
        if score.difference is not None:
            own = found.sources["own"].value
            assert score.difference.difference == pytest.approx(score.value - own)
            low, high = score.difference.interval
            assert low - 1e-9 <= score.difference.difference <= high + 1e-9
    assert changes > 0  # the model reads its words: else nothing above could fail


@pytest.mark.parametrize("kind", TASKS)
def test_without_words_a_model_answers_as_with_gates_at_zero(
    kind: str, words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    task = make(kind, words, clips, store)
    without = answers_by_source(task, ["none"])
    assert without["none"] != without["own"]
    with torch.no_grad():
        for name, weights in task.model.named_parameters():
            if name.endswith("gate"):
                weights.zero_()
    closed = answers_by_source(task, ["none", "another"])
    assert comparable(closed["own"]) == comparable(without["none"])
    assert comparable(closed["another"]) == comparable(closed["own"])


def comparable(answers: Any) -> Any:
    """Answers without scores, which differ by rounding."""
    return {
        clip: own
        if isinstance(own, str)
        else [{key: value for key, value in one.items() if key != "scores"} for one in own]
        for clip, own in answers.items()
    }


class Watched:
    """A task that keeps what it is asked to measure."""

    def __init__(self, task: Any) -> None:
        self.task, self.clips, self.model = task, task.clips, task.model
        self.seen: list[ClipEncoding] = []

    def measure(self, encoding: ClipEncoding) -> Measured:
        self.seen.append(encoding)
        measured: Measured = self.task.measure(encoding)
        return measured


@pytest.mark.parametrize("weighted", [False, True])
def test_words_and_confidences_are_those_of_their_source(
    weighted: bool, words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    """And nothing else of a clip changes; its vectors are those of its words."""
    task = make("describe", words, clips, store, f"detector.confidence_weighted={weighted}".lower())
    watched: Any = Watched(task)
    answers_by_source(watched, SOURCES)
    own, another, random, none, oracle = watched.seen
    for each in watched.seen:
        assert torch.equal(each.state.hidden, own.state.hidden)
        assert torch.equal(each.state.cell, own.state.cell)
        with torch.inference_mode():
            vectors = task.model.clip_encoder.embed_concepts(each.concept_words, each.confidences)
        assert torch.equal(each.concepts, vectors)
    others = permute_clips(clips)
    assert torch.equal(another.concept_words, own.concept_words[others])
    assert torch.equal(another.confidences, own.confidences[others])
    assert torch.equal(random.confidences, own.confidences)
    assert all(len(set(drawn)) == 3 for drawn in random.concept_words.tolist())
    assert len({tuple(drawn) for drawn in random.concept_words.tolist()}) > 6
    assert not none.concepts.any()
    assert not none.confidences.any()
    names = words.concepts.words
    for clip, drawn, sure in zip(
        clips, oracle.concept_words.tolist(), oracle.confidences.tolist(), strict=True
    ):
        assert sure == [1, 1, 0]  # their captions hold two candidates
        assert {names[word] for word in drawn[:2]} == set(clip.id.split())
    again: Any = Watched(task)
    answers_by_source(again, SOURCES)
    for first, second in zip(watched.seen, again.seen, strict=True):
        assert torch.equal(first.concepts, second.concepts)


@pytest.mark.parametrize(
    ("sources", "same"),
    [
        ("aabbcc", 0),
        ("aaabbc", 0),
        ("aaaabb", 2),  # four of one source have two of another to take words from
        ("aaaaaa", 6),
        ("ab", 0),
        ("aa", 2),
        ("", 0),  # every clip is a source of its own
        ("abcdefgaaa", 0),
    ],
)
def test_every_clip_gets_the_words_of_another_and_of_another_source_where_possible(
    sources: str, same: int
) -> None:
    names = sources or [""] * 7
    clips = [Clip(f"{place}", Path(), source=source) for place, source in enumerate(names)]
    others = permute_clips(clips)
    assert sorted(others) == list(range(len(clips)))
    assert all(place != other for place, other in enumerate(others))
    same_source = [clips[place].source == clips[other].source != "" for place, other in enumerate(others)]
    assert sum(same_source) == same
    assert others == permute_clips(clips)


def test_another_clip_is_no_neighbour_by_name() -> None:
    """Clips with neighbouring names are often alike."""
    clips = [Clip(f"{place:02}", Path(), source=f"{place:02}") for place in range(40)]
    steps = [other - place for place, other in enumerate(permute_clips(clips))]
    assert sum(abs(step) == 1 for step in steps) <= 4
    assert len(set(steps)) > 20


def test_only_measured_clips_exchange_their_words(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    some = [replace(clip, captions=()) if place < 4 else clip for place, clip in enumerate(clips)]
    task = make("describe", words, clips, store)
    task.clips.validation = some
    task.references = {clip.id: clip.captions for clip in some if clip.captions}
    watched: Any = Watched(task)
    answers = answers_by_source(watched, ["another"])
    own, another = watched.seen
    assert len(answers["another"]) == 8
    assert torch.equal(another.concepts[:4], own.concepts[:4])
    others = [4 + place for place in permute_clips(some[4:])]
    assert torch.equal(another.concept_words[4:], own.concept_words[others])


def test_the_oracle_takes_what_most_captions_say_and_the_rarer_of_two() -> None:
    known = [("man", 90), ("dog", 50), ("runs", 40), ("grass", 7), ("hat", 3)]
    concepts = Concepts(tuple(Concept(word, "noun", count) for word, count in known))
    captions = ["a man, a dog runs", "a man and a dog", "a man with a hat on grass", "a man"]
    found = [concepts.words[word] for word in oracle_words(concepts, captions, num_words=4)]
    assert found == ["man", "dog", "hat", "grass"]
    assert oracle_words(concepts, ["nothing"], num_words=4) == []


@pytest.mark.parametrize(
    ("overrides", "reads"),
    [
        ((), True),
        (("attention.input=false",), True),
        (("attention.input=false", "attention.output=false"), False),
        (("detector.enabled=false",), False),
        (("detector.enabled=false", "model.decoder=s2vt"), False),
        (("detector.enabled=false", "model.decoder=pooled"), False),
    ],
)
def test_models_without_concept_words_are_known(
    overrides: tuple[str, ...], reads: bool, words: Words, store: FeatureStore
) -> None:
    settings = load_settings("laptop", (*SETTINGS, *overrides))
    model = build_model("describe", settings, words, grid=store.grid, channels=store.channels, seed=0)
    assert reads_concepts(model) == reads


def test_where_there_is_nothing_to_ask_nothing_is_measured(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    task = make("choose", words, clips, store)
    task.items = []
    assert measure_reliance("choose", task) is None


def test_one_clip_has_no_other(words: Words, clips: list[Clip], store: FeatureStore) -> None:
    task = make("describe", words, clips[:1], store)
    assert list(answers_by_source(task, SOURCES)) == ["own", "random", "none", "oracle"]
