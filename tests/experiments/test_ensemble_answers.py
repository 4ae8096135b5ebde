"""What an ensemble answers to everything that a task asks, and what its metrics are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from animals import maps_of
from built_runs import BuiltRun, loaded, small_run
from ctsan.data.corpus import BlankItem, ChoiceItem, Clip, Corpus, Item, ItemTask, QueryItem
from ctsan.experiments.ensemble_answers import measure_ensemble
from ctsan.inference.ensemble import word_ids
from ctsan.inference.loaded_model import concatenate
from ctsan.tasks.building import build_task
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore

ITEMS: dict[ItemTask, Callable[[Clip], Item]] = {
    "fill": lambda clip: BlankItem(clip.id, f"a _____ {clip.id.split()[1]}", clip.id.split()[0]),
    "choose": lambda clip: ChoiceItem(clip.id, (clip.captions[0], "a cat eats", "a horse"), 0),
    "rank": lambda clip: QueryItem(clip.captions[0], clip.id),
}


def make_task(
    kind: str, items: Sequence[Any], run: BuiltRun, clips: Sequence[Clip], store: FeatureStore
) -> Any:
    asked: Any = {(kind, "train"): tuple(items)}
    corpus = Corpus("animals", Path(), "own", tuple(clips), asked)
    return build_task(kind, run.settings, run.words, store, corpus, model=run.model, split="train")


@pytest.mark.parametrize("kind", ["describe", "fill", "choose", "rank", "embed"])
def test_an_ensemble_of_one_answers_as_its_task_does(
    kind: str, words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    run = small_run(kind, words, store, "decoding.skip_faulty=true")
    corpus = Corpus(
        "animals",
        Path(),
        "own",
        tuple(clips),
        {(task, "train"): tuple(map(item, clips)) for task, item in ITEMS.items()},
    )
    task = build_task(kind, run.settings, run.words, store, corpus, model=run.model, split="train")
    alone, together = task.measure(), measure_ensemble(task, [run])
    assert len(alone.answers) == len(clips)
    assert together.metrics == pytest.approx(alone.metrics)
    assert without_scores(together.answers) == without_scores(alone.answers)


def without_scores(answers: Mapping[str, Any]) -> dict[str, object]:
    """Answers without scores, which differ by rounding."""
    return {
        clip: own
        if isinstance(own, str)
        else [{key: value for key, value in one.items() if key != "scores"} for one in own]
        for clip, own in answers.items()
    }


def test_measuring_reports_with_the_scale_of_validation_and_changes_nothing(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    run = small_run("rank", words, store)
    task = make_task("rank", [QueryItem(clip.captions[0], clip.id) for clip in clips], run, clips, store)
    fresh = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    metrics = task.evaluate()
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, fresh[name]), name
    task.calibrate()
    [model] = loaded([run])
    encoding = model.encode(maps_of(store, clips))
    queries = word_ids(model, [clip.captions[0] for clip in clips])
    scores = model.standardise(model.score_all(queries, encoding))
    assert scores.mean() == pytest.approx(0, abs=1e-3)
    assert scores.std() == pytest.approx(1, abs=1e-3)
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    other = small_run("choose", words, store, seed=3)
    for measured in (task.measure(), measure_ensemble(task, [run])):
        assert measured.metrics == pytest.approx({name: metrics[name] for name in measured.metrics})
        assert set(metrics) - set(measured.metrics) == {"precision on train"}
    measure_ensemble(task, [run, other])
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_choices_set_the_scale_too_and_are_measured_together(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    runs = [small_run("choose", words, store, seed=seed) for seed in (0, 1)]
    items = [
        ChoiceItem(clip.id, (clip.captions[0], other.captions[1], "a horse"), 0)
        for clip, other in zip(clips, reversed(clips), strict=True)
    ]
    expected = []
    for run, model in zip(runs, loaded(runs), strict=True):
        task = make_task("choose", items, run, clips, store)
        task.calibrate()
        encoding = model.encode(maps_of(store, clips))
        raw = np.stack(
            [
                model.score_all(word_ids(model, item.choices), encoding.of([row]))[:, 0]
                for row, item in enumerate(items)
            ]
        )
        expected.append((raw - raw.mean()) / raw.std())
    mean = (expected[0] + expected[1]) / 2
    measured: Any = measure_ensemble(task, runs)
    assert measured.metrics["accuracy"] == pytest.approx((mean.argmax(axis=1) == 0).mean())
    for row, item in enumerate(items):
        [answer] = measured.answers[item.clip]
        assert answer["scores"] == pytest.approx(mean[row].tolist(), abs=1e-3)
        assert (answer["choice"], answer["right"]) == (int(mean[row].argmax()), 0)


def test_only_clips_that_queries_are_for_are_ranked(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    run = small_run("rank", words, store)
    asked = clips[::3]
    task = make_task("rank", [QueryItem(clip.captions[0], clip.id) for clip in asked], run, clips, store)
    [model] = loaded([run])
    scores = model.score_all(
        word_ids(model, [clip.captions[0] for clip in asked]),
        concatenate([model.encode(maps_of(store, [clip])) for clip in asked]),
    )
    ranks = 1 + (scores > scores.diagonal()[:, None]).sum(axis=1)
    measured: Any
    for measured in (task.measure(), measure_ensemble(task, [run])):
        assert [measured.answers[clip.id][0]["rank"] for clip in asked] == ranks.tolist()
        assert {answer["first"] for [answer] in measured.answers.values()} <= {clip.id for clip in asked}
        assert measured.metrics["mean rank"] == pytest.approx(ranks.mean())


def test_clips_without_captions_can_be_asked_about(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    run = small_run("fill", words, store)
    bare = [replace(clip, captions=()) if number % 2 else clip for number, clip in enumerate(clips)]
    items = [
        BlankItem(clip.id, f"a _____ {clip.id.split()[1]}", f"{clip.id.split()[0].title()}.") for clip in bare
    ]
    task = make_task("fill", items, run, bare, store)
    [model] = loaded([run])
    encoding = model.encode(maps_of(store, clips[::2]))
    found = [
        words.concepts.words[number] in clip.id.split()
        for clip, numbers in zip(clips[::2], encoding.concept_words.tolist(), strict=True)
        for number in numbers
    ]
    measured: Any
    for measured in (task.measure(), measure_ensemble(task, [run])):
        assert list(measured.answers) == [clip.id for clip in clips]
        said = [answer["answer"] for [answer] in measured.answers.values()]
        right = [word == clip.id.split()[0] for word, clip in zip(said, clips, strict=True)]
        assert measured.metrics["accuracy"] == pytest.approx(sum(right) / 12)
        assert measured.metrics["precision"] == pytest.approx(sum(found) / len(found))
