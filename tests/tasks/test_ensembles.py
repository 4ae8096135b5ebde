"""Models that answer as one: every answer is the mean that can be worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ctsan.config import DecodingSettings, RerankSettings, load_settings
from ctsan.data.corpus import BlankItem, ChoiceItem, Clip, Corpus, ItemTask, QueryItem
from ctsan.tasks.blank import AskedBlank, encode_blanks, fill
from ctsan.tasks.building import build_model, build_task, fit_probes, init_from_clips
from ctsan.tasks.captioning import caption_clips
from ctsan.tasks.loaded_model import LoadedModel, joined
from ctsan.tasks.scoring import ensemble_scores, score_all, score_each
from ctsan.text.vocabulary import BLANK, BOS, EOS, UNK, Vocabulary
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore

SETTINGS = (
    "model.embedding_dim=8",
    "detector.attention_dim=4",
    "detector.num_concepts=3",
    "retrieval.sketch_dim=32",
    "retrieval.joint_dim=8",
)


def make_member(
    task: str,
    words: Words,
    store: FeatureStore,
    *,
    seed: int,
    hidden: int = 12,
    layers: int = 2,
    max_frames: int = 10,
    phrases: int = 0,
) -> LoadedModel[Any]:
    sizes = (f"model.hidden_dim={hidden}", f"model.num_layers={layers}", f"retrieval.phrases={phrases}")
    settings = load_settings("laptop", (*SETTINGS, *sizes))
    model = build_model(task, settings, words, grid=store.grid, channels=store.channels, seed=seed)
    return LoadedModel(model.eval(), words, max_frames, 6, standardise=True)


def other_words(words: Words) -> Words:
    """The same words in another order, without `bird`, and with `fish`."""
    known = words.vocabulary.words
    kept = [word for word in reversed(known[5:]) if word != "bird"]
    vocabulary = Vocabulary((*known[:5], *kept, "fish"), (*[0] * 5, *[9] * (len(kept) + 1)))
    concepts = replace(
        words.concepts, candidates=tuple(c for c in words.concepts.candidates if c.word != "bird")
    )
    rows = words.embedding[: len(vocabulary)]
    return Words(vocabulary, concepts, rows)


def make_task(
    kind: ItemTask, items: Sequence[Any], member: LoadedModel[Any], clips: Sequence[Clip], store: FeatureStore
) -> Any:
    settings = load_settings("laptop", SETTINGS)
    corpus = Corpus("animals", Path(), "own", tuple(clips), {(kind, "train"): tuple(items)})
    return build_task(kind, settings, member.words, store, corpus, model=member.model, split="train")


def maps_of(store: FeatureStore, clips: Sequence[Clip]) -> list[Any]:
    return [store[clip.id].maps for clip in clips]


def test_the_probability_of_a_word_is_the_mean_over_models_with_different_words(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    members = [
        make_member("fill", words, store, seed=0),
        make_member("fill", other_words(words), store, seed=1, hidden=16, max_frames=2),
    ]
    encodings = [member.encode(maps_of(store, clips[:1])) for member in members]
    sentence = "a ____ runs <blank>"
    found = fill(
        members,
        [AskedBlank(sentence, n) for n in (0, 1)],
        [each.of(torch.tensor([0, 0])) for each in encodings],
    )
    assert set(found.words) == {*words.vocabulary.words, "fish"}
    np.testing.assert_allclose(found.probabilities.sum(dim=1), 1, atol=1e-6)
    for number, place in enumerate((1, 3)):
        expected = dict.fromkeys(found.words, 0.0)
        for member, encoding in zip(members, encodings, strict=True):
            vocabulary = member.words.vocabulary
            numbers, places = encode_blanks(sentence, vocabulary)
            assert places == [1, 3]
            assert numbers.count(BLANK) == 2  # the other one stays blank
            with torch.inference_mode():
                scores = member.model(
                    torch.tensor([numbers]),
                    torch.ones(1, 4, dtype=torch.bool),
                    torch.tensor([place]),
                    encoding,
                ).scores[0]
            for word, probability in zip(
                vocabulary.words[5:], scores[5:].softmax(dim=0).tolist(), strict=True
            ):
                expected[word] += probability / 2
        for word, probability in zip(found.words, found.probabilities[number].tolist(), strict=True):
            assert probability == pytest.approx(expected[word], abs=1e-6), word


@pytest.mark.parametrize("tasks", [("choose", "choose"), ("rank", "rank"), ("rank", "choose")])
def test_scores_are_means_on_one_scale(
    words: Words, clips: list[Clip], store: FeatureStore, tasks: tuple[str, str]
) -> None:
    members = [
        make_member(task, known, store, seed=seed)
        for seed, (task, known) in enumerate(zip(tasks, (words, other_words(words)), strict=True))
    ]
    sentences = ["a dog runs", "cat sleeps", "a bird", "bird eats a horse"]
    encodings = [member.encode(maps_of(store, clips)) for member in members]
    own = [score_all(member, sentences, each) for member, each in zip(members, encodings, strict=True)]
    together = ensemble_scores(members, own)
    assert together.shape == (4, 12)
    torch.testing.assert_close(together, (own[0] + own[1]) / 2)  # as long as no scale is known
    members[1].model.calibrate_scale(own[1])
    standard = (own[1] - own[1].mean()) / own[1].std(correction=0)
    torch.testing.assert_close(ensemble_scores(members, own), (own[0] + standard) / 2)
    plain = [replace(member, standardise=False) for member in members]
    torch.testing.assert_close(ensemble_scores(plain, own), (own[0] + own[1]) / 2)  # as in the paper
    torch.testing.assert_close(
        ensemble_scores([plain[0], members[1]], own), ensemble_scores(members, own)
    )  # one that says so is enough
    # the second does not know "bird": half of a query's words are too few, three of four are enough
    apart = ensemble_scores(members, own, queries=sentences)
    torch.testing.assert_close(apart[[0, 1, 3]], ensemble_scores(members, own)[[0, 1, 3]])
    torch.testing.assert_close(apart[2], own[0][2])
    # pair by pair
    rows = torch.arange(12).repeat(4)
    each = score_each(members[0], [s for s in sentences for _ in clips], encodings[0].of(rows)).scores
    torch.testing.assert_close(each.view(4, 12), own[0], atol=1e-5, rtol=1e-4)


def test_a_description_says_the_words_that_are_likeliest_on_average(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    members = [
        make_member("describe", words, store, seed=0),
        make_member("describe", words, store, seed=5, hidden=16, layers=1),
    ]
    encodings = [member.encode(maps_of(store, clips[:3])) for member in members]
    decoding = DecodingSettings(beam=4, max_words=5)
    found = caption_clips(members, encodings, decoding, n_best=2)
    assert [len(sentences) for sentences in found] == [2, 2, 2]
    for row, sentences in enumerate(found):
        for sentence in sentences:
            numbers = words.vocabulary.encode(sentence.text.split())
            said = torch.tensor([[BOS, *numbers]])
            following = [*numbers, EOS] if len(numbers) < 5 else numbers
            with torch.inference_mode():
                probabilities = [
                    member.model(said, each.of(torch.tensor([row]))).scores[0].softmax(dim=-1)
                    for member, each in zip(members, encodings, strict=True)
                ]
            mean = (probabilities[0] + probabilities[1]) / 2
            logs = [float(mean[step, word].log()) for step, word in enumerate(following)]
            assert sentence.score == pytest.approx(sum(logs) / len(logs), abs=1e-4)
    alone, twice = (caption_clips([members[0]] * n, [encodings[0]] * n, decoding, n_best=2) for n in (1, 2))
    assert [[s.text for s in each] for each in alone] == [[s.text for s in each] for each in twice]


def test_models_with_different_words_describe_as_one(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    """What only one of them knows has half of its probability, and is the unknown word to the other."""
    members = [
        make_member("describe", known, store, seed=seed)
        for seed, known in enumerate((words, other_words(words)))
    ]
    encodings = [member.encode(maps_of(store, clips[:3])) for member in members]
    found = caption_clips(members, encodings, DecodingSettings(beam=3, max_words=4, length_penalty=0.0))
    for row, [sentence] in enumerate(found):
        said = sentence.text.split()
        total = 0.0
        for step in range(4):
            mean = 0.0
            for member, encoding in zip(members, encodings, strict=True):
                vocabulary = member.words.vocabulary
                read = torch.tensor([[BOS, *vocabulary.encode(said[:step])]])
                with torch.inference_mode():
                    scores = member.model(read, encoding.of(torch.tensor([row]))).scores[0, -1].softmax(dim=0)
                [number] = vocabulary.encode(said[step : step + 1]) or [EOS]
                mean += float(scores[number]) / 2 if number != UNK else 0.0
            total += math.log(mean)
            if step == len(said):
                break
        assert sentence.score == pytest.approx(total, abs=1e-4)


def test_a_joint_embedding_chooses_among_what_the_beam_found(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    """By the mean log-probability and the standardised cosine, which are worked out here one by one."""
    tasks: tuple[str, ...] = ("embed", "describe", "embed")
    members = [make_member(task, words, store, seed=seed) for seed, task in enumerate(tasks)]
    judges = [members[0], members[2]]
    for judge in judges:
        judge.model.calibrate_scale(torch.tensor([0.1, 0.2, 0.6]) * (1 + judge.model.joint_dim))
    encodings = [member.encode(maps_of(store, clips[:3])) for member in members]
    decoding = DecodingSettings(beam=6, max_words=5)
    likeliest = caption_clips(members, encodings, decoding, RerankSettings(embedding_weight=0.0), n_best=6)
    best = caption_clips(members, encodings, decoding, RerankSettings(embedding_weight=0.7), n_best=6)
    assert likeliest != best
    for row, sentences in enumerate(best):
        assert {each.text for each in sentences} == {each.text for each in likeliest[row]}
        assert sorted(likeliest[row], key=lambda sentence: -sentence.score) == likeliest[row]
        worth = []
        for sentence in sentences:
            cosines = [
                score_each(judge, [sentence.text], encodings[place].of(torch.tensor([row]))).scores
                for judge, place in zip(judges, (0, 2), strict=True)
            ]
            suits = [float(judge.model.standardise(own)) for judge, own in zip(judges, cosines, strict=True)]
            worth.append(sentence.log_probability + 0.7 * sum(suits) / 2)
        assert worth == pytest.approx([sentence.score for sentence in sentences], abs=1e-5)
        assert worth == sorted(worth, reverse=True)
    [[first], *_] = caption_clips(members, encodings, decoding, RerankSettings(embedding_weight=0.7))
    assert first == best[0][0]
    [[greedy], *_] = caption_clips(members, encodings, replace(decoding, beam=1))
    [[alone], *_] = caption_clips(members[1:2], encodings[1:2], replace(decoding, beam=1))
    assert greedy.text == alone.text  # there is nothing to choose from
    assert alone.score == alone.log_probability == greedy.log_probability


def test_a_phrase_probe_has_a_say_in_what_is_said(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    """What counts is a tenth of the mean log-probability and the CIDEr that is expected, one by one."""
    members = [make_member(task, words, store, seed=0, phrases=200) for task in ("embed", "describe")]
    judge = members[0].model
    init_from_clips(judge, clips, store, words, load_settings("laptop").init)
    fit_probes(judge, clips, store, words)
    encodings = [member.encode(maps_of(store, clips[:3])) for member in members]
    decoding = DecodingSettings(beam=6, max_words=5)
    nothing = RerankSettings(embedding_weight=0.0, cider_weight=0.0)
    likeliest = caption_clips(members, encodings, decoding, nothing, n_best=6)
    best = caption_clips(members, encodings, decoding, replace(nothing, cider_weight=0.3), n_best=6)
    assert likeliest != best
    for row, sentences in enumerate(best):
        assert {sentence.text for sentence in sentences} == {sentence.text for sentence in likeliest[row]}
        numbers = [words.vocabulary.encode(sentence.text.split()) for sentence in sentences]
        weights = judge.phrases.weigh(encodings[0].state.top[row : row + 1])
        expected = [float(judge.phrases(torch.tensor([[own]]), weights)) for own in numbers]
        worth = [
            0.1 * sentence.log_probability + 0.3 * own
            for sentence, own in zip(sentences, expected, strict=True)
        ]
        assert worth == pytest.approx([sentence.score for sentence in sentences], abs=1e-5)
        assert worth == sorted(worth, reverse=True)
        assert max(expected) > 0


def test_measuring_reports_with_the_scale_of_validation_and_changes_nothing(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    member = make_member("rank", words, store, seed=0)
    task = make_task("rank", [QueryItem(clip.captions[0], clip.id) for clip in clips], member, clips, store)
    fresh = {name: tensor.clone() for name, tensor in member.model.state_dict().items()}
    metrics = task.evaluate()
    for name, tensor in member.model.state_dict().items():
        assert torch.equal(tensor, fresh[name]), name
    task.calibrate()
    encoding = member.encode(maps_of(store, clips))
    scores = member.model.standardise(score_all(member, [clip.captions[0] for clip in clips], encoding))
    assert scores.mean().item() == pytest.approx(0, abs=1e-3)
    assert scores.std(correction=0).item() == pytest.approx(1, abs=1e-3)
    before = {name: tensor.clone() for name, tensor in member.model.state_dict().items()}
    other = make_member("choose", words, store, seed=3)
    measured = task.measure([member])
    assert measured.metrics == pytest.approx({name: metrics[name] for name in measured.metrics})
    assert set(metrics) - set(measured.metrics) == {"precision on train"}
    task.measure([member, other])
    for name, tensor in member.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_choices_set_the_scale_too_and_are_measured_together(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    members = [make_member("choose", words, store, seed=seed) for seed in (0, 1)]
    items = [
        ChoiceItem(clip.id, (clip.captions[0], other.captions[1], "a horse"), 0)
        for clip, other in zip(clips, reversed(clips), strict=True)
    ]
    expected = []
    for member in members:
        task = make_task("choose", items, member, clips, store)
        task.calibrate()
        encoding = member.encode(maps_of(store, clips))
        raw = torch.stack(
            [
                score_all(member, item.choices, encoding.of(torch.tensor([row])))[:, 0]
                for row, item in enumerate(items)
            ]
        )
        expected.append((raw - raw.mean()) / raw.std(correction=0))
    mean = (expected[0] + expected[1]) / 2
    measured = task.measure(members)
    assert measured.metrics["accuracy"] == pytest.approx((mean.argmax(dim=1) == 0).double().mean().item())
    for row, item in enumerate(items):
        [answer] = measured.answers[item.clip]
        assert answer["scores"] == pytest.approx(mean[row].tolist(), abs=1e-3)
        assert (answer["choice"], answer["right"]) == (int(mean[row].argmax()), 0)


def test_only_clips_that_queries_are_for_are_ranked(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    member = make_member("rank", words, store, seed=0)
    asked = clips[::3]
    task = make_task("rank", [QueryItem(clip.captions[0], clip.id) for clip in asked], member, clips, store)
    scores = score_all(
        member,
        [clip.captions[0] for clip in asked],
        joined([member.encode(maps_of(store, [clip])) for clip in asked]),
    )
    ranks = 1 + (scores > scores.diagonal()[:, None]).sum(dim=1)
    measured = task.measure([member])
    assert [measured.answers[clip.id][0]["rank"] for clip in asked] == ranks.tolist()
    assert {answer["first"] for [answer] in measured.answers.values()} <= {clip.id for clip in asked}
    assert measured.metrics["mean rank"] == pytest.approx(ranks.double().mean().item())


def test_clips_without_captions_can_be_asked_about(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    member = make_member("fill", words, store, seed=0)
    bare = [replace(clip, captions=()) if number % 2 else clip for number, clip in enumerate(clips)]
    items = [
        BlankItem(clip.id, f"a _____ {clip.id.split()[1]}", f"{clip.id.split()[0].title()}.") for clip in bare
    ]
    task = make_task("fill", items, member, bare, store)
    measured = task.measure([member])
    assert list(measured.answers) == [clip.id for clip in clips]
    said = [answer["answer"] for [answer] in measured.answers.values()]
    right = [word == clip.id.split()[0] for word, clip in zip(said, clips, strict=True)]
    assert measured.metrics["accuracy"] == pytest.approx(sum(right) / 12)
    encoding = member.encode(maps_of(store, clips[::2]))
    found = [
        words.concepts.words[number] in clip.id.split()
        for clip, numbers in zip(clips[::2], encoding.concept_words.tolist(), strict=True)
        for number in numbers
    ]
    assert measured.metrics["precision"] == pytest.approx(sum(found) / len(found))
