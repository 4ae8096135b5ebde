"""Captions of one model and of several, reranked or not: every score can be worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from animals import maps_of, other_words
from built_runs import encode, loaded, small_run
from ctsan.config import DecodingSettings, RerankSettings, load_settings
from ctsan.data.corpus import Clip
from ctsan.inference.captioning import caption_clips
from ctsan.inference.ensemble import word_ids
from ctsan.tasks.building import fit_probes, init_from_clips
from ctsan.text.vocabulary import BOS, EOS, UNK
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore


def test_a_description_says_the_words_that_are_likeliest_on_average(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    runs = [
        small_run("describe", words, store, seed=0),
        small_run("describe", words, store, "model.hidden_dim=16", "model.num_layers=1", seed=5),
    ]
    models, maps = loaded(runs), maps_of(store, clips[:3])
    encodings = [model.encode(maps) for model in models]
    decoding = DecodingSettings(beam=4, max_words=5)
    found = caption_clips(models, encodings, decoding, n_best=2)
    assert [len(sentences) for sentences in found] == [2, 2, 2]
    for row, sentences in enumerate(found):
        for sentence in sentences:
            numbers = words.vocabulary.encode(sentence.text.split())
            said = torch.tensor([[BOS, *numbers]])
            following = [*numbers, EOS] if len(numbers) < 5 else numbers
            with torch.inference_mode():
                probabilities = [
                    run.model(said, encode(run, maps).of(torch.tensor([row]))).scores[0].softmax(dim=-1)
                    for run in runs
                ]
            mean = (probabilities[0] + probabilities[1]) / 2
            logs = [float(mean[step, word].log()) for step, word in enumerate(following)]
            assert sentence.score == pytest.approx(sum(logs) / len(logs), abs=1e-4)
    alone, twice = (caption_clips([models[0]] * n, [encodings[0]] * n, decoding, n_best=2) for n in (1, 2))
    assert [[s.text for s in each] for each in alone] == [[s.text for s in each] for each in twice]


def test_models_with_different_words_describe_as_one(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    """What only one of them knows has half of its probability, and is the unknown word to the other."""
    runs = [
        small_run("describe", known, store, seed=seed)
        for seed, known in enumerate((words, other_words(words)))
    ]
    models, maps = loaded(runs), maps_of(store, clips[:3])
    encodings = [model.encode(maps) for model in models]
    found = caption_clips(models, encodings, DecodingSettings(beam=3, max_words=4, length_penalty=0.0))
    for row, [sentence] in enumerate(found):
        said = sentence.text.split()
        total = 0.0
        for step in range(4):
            mean = 0.0
            for run in runs:
                vocabulary = run.words.vocabulary
                read = torch.tensor([[BOS, *vocabulary.encode(said[:step])]])
                with torch.inference_mode():
                    encoding = encode(run, maps).of(torch.tensor([row]))
                    scores = run.model(read, encoding).scores[0, -1].softmax(dim=0)
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
    runs = [small_run(task, words, store, seed=seed) for seed, task in enumerate(tasks)]
    models = loaded(runs)
    for run in (runs[0], runs[2]):
        run.model.calibrate_scale(torch.tensor([0.1, 0.2, 0.6]) * (1 + run.model.joint_dim))
    encodings = [model.encode(maps_of(store, clips[:3])) for model in models]
    decoding = DecodingSettings(beam=6, max_words=5)
    likeliest = caption_clips(models, encodings, decoding, RerankSettings(embedding_weight=0.0), n_best=6)
    best = caption_clips(models, encodings, decoding, RerankSettings(embedding_weight=0.7), n_best=6)
    assert likeliest != best
    for row, sentences in enumerate(best):
        assert {each.text for each in sentences} == {each.text for each in likeliest[row]}
        assert sorted(likeliest[row], key=lambda sentence: -sentence.score) == likeliest[row]
        worth = []
        for sentence in sentences:
            suits = []
            for place in (0, 2):
                read = word_ids(models[place], [sentence.text])
                cosine, _ = models[place].score_each(read, encodings[place].of([row]))
                suits.append(float(runs[place].model.standardise(torch.from_numpy(cosine))))
            worth.append(sentence.log_probability + 0.7 * sum(suits) / 2)
        assert worth == pytest.approx([sentence.score for sentence in sentences], abs=1e-5)
        assert worth == sorted(worth, reverse=True)
    [[first], *_] = caption_clips(models, encodings, decoding, RerankSettings(embedding_weight=0.7))
    assert first == best[0][0]
    [[greedy], *_] = caption_clips(models, encodings, replace(decoding, beam=1))
    [[alone], *_] = caption_clips(models[1:2], encodings[1:2], replace(decoding, beam=1))
    assert greedy.text == alone.text  # there is nothing to choose from
    assert alone.score == alone.log_probability == greedy.log_probability


def test_a_phrase_probe_has_a_say_in_what_is_said(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    """What counts is a tenth of the mean log-probability and the CIDEr that is expected, one by one."""
    runs = [small_run(task, words, store, "retrieval.phrases=200") for task in ("embed", "describe")]
    judge = runs[0].model
    init_from_clips(judge, clips, store, words, load_settings("laptop").init)
    fit_probes(judge, clips, store, words)
    models, maps = loaded(runs), maps_of(store, clips[:3])
    encodings = [model.encode(maps) for model in models]
    decoding = DecodingSettings(beam=6, max_words=5)
    nothing = RerankSettings(embedding_weight=0.0, cider_weight=0.0)
    likeliest = caption_clips(models, encodings, decoding, nothing, n_best=6)
    best = caption_clips(models, encodings, decoding, replace(nothing, cider_weight=0.3), n_best=6)
    assert likeliest != best
    for row, sentences in enumerate(best):
        assert {sentence.text for sentence in sentences} == {sentence.text for sentence in likeliest[row]}
        numbers = [words.vocabulary.encode(sentence.text.split()) for sentence in sentences]
        weights = judge.phrases.weigh(encode(runs[0], maps).state.top[row : row + 1])
        expected = [float(judge.phrases(torch.tensor([[own]]), weights)) for own in numbers]
        worth = [
            0.1 * sentence.log_probability + 0.3 * own
            for sentence, own in zip(sentences, expected, strict=True)
        ]
        assert worth == pytest.approx([sentence.score for sentence in sentences], abs=1e-5)
        assert worth == sorted(worth, reverse=True)
        assert max(expected) > 0
