"""decoding.skip_faulty: sentences with a grammar fault are said last, and hardly any is learnt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from built_runs import BuiltRun, built_run, loaded, run_of
from ctsan.config import DecodingSettings, RerankSettings
from ctsan.data.corpus import Clip, Corpus
from ctsan.evaluation.grammar import grammar_fault
from ctsan.inference.captioning import Hypothesis, caption_clips
from ctsan.tasks.building import build_model, build_task
from ctsan.tasks.description import DescriptionTask
from ctsan.tasks.registry import task_settings
from ctsan.text.vocabulary import PAD
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore

SMALL = (
    "model.hidden_dim=16",
    "model.embedding_dim=8",
    "model.dropout=0",
    "detector.attention_dim=4",
    "detector.num_concepts=3",
    "loss.label_smoothing=0",
    "decoding.max_words=6",
)
FAULTY, RIGHT = "a dog dog", "a dog runs"


def make_task(words: Words, clips: Sequence[Clip], store: FeatureStore, *overrides: str) -> DescriptionTask:
    settings = task_settings("describe", "laptop", (*SMALL, *overrides))
    model = build_model("describe", settings, words, grid=store.grid, channels=store.channels, seed=0)
    corpus = Corpus("animals", Path(), "own", tuple(clips))
    task = build_task("describe", settings, words, store, corpus, model=model, split="train")
    assert isinstance(task, DescriptionTask)
    return task


@pytest.fixture(scope="module")
def taught(words: Words, clips: list[Clip], store: FeatureStore) -> BuiltRun:
    """A model that was told the faulty sentence twice as often as the right one."""
    dog = replace(clips[0], captions=(FAULTY, FAULTY, RIGHT))
    task = make_task(words, [dog], store, "decoding.skip_faulty=false")
    batch = task.batch([0], mirrored=[False])
    torch.manual_seed(0)
    adam = torch.optim.Adam(task.model.parameters(), lr=0.01)
    for _ in range(60):
        adam.zero_grad()
        torch.autograd.backward(sum(task.losses(batch).values(), start=torch.zeros(())))
        adam.step()
    return run_of("describe", task_settings("describe", "laptop", SMALL), words, store, task.model)


def judge(words: Words, store: FeatureStore) -> BuiltRun:
    settings = task_settings("embed", "laptop", ("retrieval.phrases=0", "retrieval.joint_dim=4"))
    return built_run("embed", settings, words, store, seed=0)


@pytest.mark.parametrize("reranked", [False, True])
def test_the_likeliest_sentence_without_a_fault_is_said(
    words: Words,
    store: FeatureStore,
    taught: BuiltRun,
    clips: list[Clip],
    reranked: bool,
) -> None:
    models = loaded([taught, judge(words, store)] if reranked else [taught])
    encodings = [model.encode([store[clips[0].id].maps]) for model in models]

    def said(*, beam: int = 3, n_best: int = 1, skip_faulty: bool) -> list[Hypothesis]:
        decoding = DecodingSettings(beam=beam, max_words=6, skip_faulty=skip_faulty)
        [found] = caption_clips(
            models, encodings, decoding, RerankSettings(embedding_weight=0), n_best=n_best
        )
        return found

    assert [each.text for each in said(skip_faulty=False)] == [FAULTY]
    assert [each.text for each in said(skip_faulty=True)] == [RIGHT]
    likeliest, skipped = said(n_best=3, skip_faulty=False), said(n_best=3, skip_faulty=True)
    assert {each.text for each in skipped} == {each.text for each in likeliest}
    assert skipped[0] == said(skip_faulty=True)[0]
    assert said(n_best=3, skip_faulty=True)[:2] == said(n_best=2, skip_faulty=True)
    # A beam of 1 has nothing else to say, and of sentences alike in faults the best comes first.
    assert [each.text for each in said(beam=1, skip_faulty=True)] == [FAULTY]
    in_order = sorted(skipped, key=lambda each: (grammar_fault(each.text) is not None, -each.score))
    assert skipped == in_order
    assert FAULTY in {each.text for each in skipped[1:]}


@pytest.mark.parametrize(
    ("skip_faulty", "beam", "said"), [(False, 3, FAULTY), (True, 3, RIGHT), (True, 1, FAULTY)]
)
def test_a_task_measures_what_is_said(
    words: Words,
    store: FeatureStore,
    taught: BuiltRun,
    clips: list[Clip],
    skip_faulty: bool,
    beam: int,
    said: str,
) -> None:
    overrides = (f"decoding.skip_faulty={skip_faulty}".lower(), f"decoding.beam={beam}")
    task = make_task(words, clips[:1], store, *overrides)
    task.model.load_state_dict(taught.model.state_dict())
    task.model.eval()
    assert task.measure().answers == {clips[0].id: said}


def test_a_caption_with_a_fault_is_learnt_only_where_the_clip_has_no_other(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    mixed = replace(clips[0], captions=(RIGHT, "a dog cat cat"))
    faulty = replace(clips[1], captions=(FAULTY, "a cat cat"))

    def learnt(*overrides: str) -> list[str]:
        task = make_task(words, [mixed, faulty], store, *overrides)
        batch = task.batch([0, 1], mirrored=[False, False])
        cat = words.concepts.words.index("cat")
        assert batch.reference[:, cat].tolist() == [1, 1]  # concept words are from all captions
        rows = [[number for number in row[1:] if number != PAD][:-1] for row in batch.captions.tolist()]
        return [" ".join(words.vocabulary.decode(row)) for row in rows]

    assert learnt("decoding.skip_faulty=false") == [*mixed.captions, *faulty.captions]
    assert learnt() == [RIGHT, *faulty.captions]
