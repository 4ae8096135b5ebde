"""Models that answer as one: every answer is the mean that can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from animals import maps_of, other_words
from built_runs import BuiltRun, encode, loaded, small_run
from ctsan.data.corpus import Clip
from ctsan.inference.ensemble import AskedBlank, ensemble_scores, fill_blanks, word_ids
from ctsan.inference.loaded_model import Floats
from ctsan.text.sentences import encode_blanks
from ctsan.text.vocabulary import BLANK
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore


def test_the_probability_of_a_word_is_the_mean_over_models_with_different_words(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    runs = [
        small_run("fill", words, store, seed=0),
        small_run("fill", other_words(words), store, "model.hidden_dim=16", "model.max_frames=2", seed=1),
    ]
    models, maps = loaded(runs), maps_of(store, clips[:1])
    sentence = "a ____ runs <blank>"
    found = fill_blanks(
        models,
        [AskedBlank(sentence, n) for n in (0, 1)],
        [model.encode(maps).of([0, 0]) for model in models],
    )
    assert set(found.words) == {*words.vocabulary.words, "fish"}
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, atol=1e-6)
    for number, place in enumerate((1, 3)):
        expected = dict.fromkeys(found.words, 0.0)
        for run in runs:
            vocabulary = run.words.vocabulary
            numbers, places = encode_blanks(sentence, vocabulary)
            assert places == [1, 3]
            assert numbers.count(BLANK) == 2  # the other one stays blank
            with torch.inference_mode():
                scores = run.model(
                    torch.tensor([numbers]),
                    torch.ones(1, 4, dtype=torch.bool),
                    torch.tensor([place]),
                    encode(run, maps),
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
    runs = [
        small_run(task, known, store, seed=seed)
        for seed, (task, known) in enumerate(zip(tasks, (words, other_words(words)), strict=True))
    ]
    models = loaded(runs)
    sentences = ["a dog runs", "cat sleeps", "a bird", "bird eats a horse"]
    encodings = [model.encode(maps_of(store, clips)) for model in models]
    own = [
        model.score_all(word_ids(model, sentences), encoding)
        for model, encoding in zip(models, encodings, strict=True)
    ]
    together = ensemble_scores(models, own)
    assert together.shape == (4, 12)
    assert_close(together, (own[0] + own[1]) / 2)  # as long as no scale is known
    runs[1].model.calibrate_scale(torch.from_numpy(own[1]))
    standard = (own[1] - own[1].mean()) / own[1].std()
    assert_close(ensemble_scores(models, own), (own[0] + standard) / 2)
    plain = loaded([not_standardised(run) for run in runs])
    assert_close(ensemble_scores(plain, own), (own[0] + own[1]) / 2)  # as in the paper
    assert_close(
        ensemble_scores([plain[0], models[1]], own), ensemble_scores(models, own)
    )  # one that says so is enough
    # the second does not know "bird": half of a query's words are too few, three of four are enough
    apart = ensemble_scores(models, own, queries=sentences)
    assert_close(apart[[0, 1, 3]], ensemble_scores(models, own)[[0, 1, 3]])
    assert_close(apart[2], own[0][2])
    # pair by pair
    rows = np.tile(np.arange(12), 4)
    pairs = word_ids(models[0], [sentence for sentence in sentences for _ in clips])
    each, _ = models[0].score_each(pairs, encodings[0].of(rows))
    assert_close(each.reshape(4, 12), own[0], atol=1e-5, rtol=1e-4)


def not_standardised(run: BuiltRun) -> BuiltRun:
    """The run with other settings, and the same model."""
    ensemble = replace(run.settings.ensemble, standardise=False)
    return replace(run, settings=replace(run.settings, ensemble=ensemble))


def assert_close(found: Floats, expected: Floats, *, rtol: float = 1.3e-6, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
