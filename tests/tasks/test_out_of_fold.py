"""Out-of-fold concept words: what is said of a clip never tells which words it is given in training."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ctsan.config import load_settings
from ctsan.data.corpus import Clip, Corpus
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.tasks.building import build_model, out_of_fold_scores
from ctsan.tasks.registry import task_settings
from ctsan.text.words import Words
from ctsan.training.initialisation import set_up_task
from ctsan.video.store import FeatureStore

SMALL = (
    "model.hidden_dim=8",
    "model.embedding_dim=8",
    "detector.num_concepts=3",
    "training.out_of_fold=true",
)


def encoder_for(words: Words, store: FeatureStore, *overrides: str) -> ClipEncoder:
    settings = load_settings("laptop", (*SMALL, *overrides))
    model = build_model("describe", settings, words, grid=store.grid, channels=store.channels, seed=0)
    assert isinstance(model.clip_encoder, ClipEncoder)
    return model.clip_encoder


def test_a_clips_own_captions_change_the_scores_of_others_and_not_its_own(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    encoder = encoder_for(words, store)
    before = out_of_fold_scores(encoder, clips, store, words)
    changed = [replace(clips[0], captions=("a horse eats a bird",)), *clips[1:]]
    after = out_of_fold_scores(encoder, changed, store, words)
    assert before is not None
    assert after is not None
    assert torch.equal(before[clips[0].id], after[clips[0].id])
    assert sum(not torch.equal(before[clip.id], after[clip.id]) for clip in clips[1:]) > len(clips) // 2


def test_they_are_the_same_whether_or_not_the_detector_has_a_probe(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    with_probe, without = (
        out_of_fold_scores(encoder_for(words, store, f"detector.probe={probe}"), clips, store, words)
        for probe in ("mlp", "none")
    )
    torch.testing.assert_close(with_probe, without)


def test_clips_of_one_source_are_in_one_fold(words: Words, clips: list[Clip], store: FeatureStore) -> None:
    encoder = encoder_for(words, store)
    sources = [replace(clip, source=f"film {number // 2}") for number, clip in enumerate(clips)]
    before = out_of_fold_scores(encoder, sources, store, words)
    changed = [replace(sources[0], captions=("a horse eats a bird",)), *sources[1:]]
    after = out_of_fold_scores(encoder, changed, store, words)
    assert before is not None
    assert after is not None
    assert torch.equal(before[clips[1].id], after[clips[1].id])


def test_few_own_clips_beside_many_external_ones_get_words(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    """Whatever the folds, every probe has clips of both buckets to learn from."""
    mixed = [
        replace(clip, external=number >= 2, source=f"film {number}" if number < 2 else "tv")
        for number, clip in enumerate(clips)
    ]
    scores = out_of_fold_scores(encoder_for(words, store), mixed, store, words)
    assert scores is not None
    assert all(own.isfinite().all() for own in scores.values())


@pytest.mark.parametrize("num_own", [12, 2])
def test_where_own_clips_are_of_one_source_each_is_left_out_by_itself(
    words: Words, clips: list[Clip], store: FeatureStore, num_own: int
) -> None:
    """Its captions change the words of other own clips, and not its own."""
    encoder = encoder_for(words, store)
    one = [
        replace(clip, source="film" if number < num_own else "tv", external=number >= num_own)
        for number, clip in enumerate(clips)
    ]
    before = out_of_fold_scores(encoder, one, store, words)
    changed = [replace(one[0], captions=("a horse eats a bird",)), *one[1:]]
    after = out_of_fold_scores(encoder, changed, store, words)
    assert before is not None
    assert after is not None
    assert torch.equal(before[clips[0].id], after[clips[0].id])
    own = [clip.id for clip in clips[1:num_own]]
    assert sum(not torch.equal(before[clip], after[clip]) for clip in own) > len(own) // 2


def test_a_single_own_clip_is_learnt_with_the_words_of_the_detector(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    for train in (clips[:1], [clips[0], *(replace(clip, external=True) for clip in clips[1:-1])]):
        corpus = Corpus("animals", store.folder, "own", (*train, replace(clips[-1], split="val")))
        task = set_up_task("describe", load_settings("laptop", SMALL), words, store, corpus)
        batch = task.batch([0], mirrored=[False])
        assert batch.concept_scores.shape[1] == 0
        assert all(loss.isfinite() for loss in task.losses(batch).values())


def test_training_chooses_words_by_them_and_asking_does_not(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    asked = [replace(clip, split="val") for clip in clips[-2:]]
    corpus = Corpus("animals", store.folder, "own", (*clips[:-2], *asked))
    settings = task_settings("describe", "laptop", SMALL)
    task = set_up_task("describe", settings, words, store, corpus)
    batch = task.batch([0, 1], mirrored=[False, False])
    encoder = task.model.clip_encoder
    assert isinstance(encoder, ClipEncoder)
    scores = out_of_fold_scores(encoder, corpus.split("train"), store, words)
    assert scores is not None
    assert torch.equal(batch.concept_scores[0], scores[batch.clips[0]].float())
    encoding = encoder(batch.maps, batch.frame_is_real, batch.concept_scores)
    wanted, _ = encoder.top(batch.concept_scores)
    assert torch.equal(encoding.concept_words, wanted)
    settings = load_settings("laptop", (*SMALL, "training.out_of_fold=false"))
    without = set_up_task("describe", settings, words, store, corpus)
    assert without.batch([0, 1], mirrored=[False, False]).concept_scores.shape[1] == 0


@pytest.mark.parametrize("probe", ["none", "mlp"])
def test_a_resumed_training_goes_on_with_the_same_words(
    words: Words, clips: list[Clip], store: FeatureStore, probe: str
) -> None:
    """Also where channel statistics came from another run, which may be gone by then."""
    corpus = Corpus(
        "animals", store.folder, "own", (*clips[:-2], *(replace(c, split="val") for c in clips[-2:]))
    )
    settings = load_settings("laptop", (*SMALL, f"detector.probe={probe}"))
    trained = build_model("describe", settings, words, grid=store.grid, channels=store.channels, seed=1)
    assert isinstance(trained.clip_encoder, ClipEncoder)
    scales = torch.linspace(0.01, 3, store.channels)
    trained.clip_encoder.init_from(channels=(torch.full_like(scales, 0.5), scales))
    begun = set_up_task("describe", settings, words, store, corpus, init_from=trained)
    resumed = set_up_task("describe", settings, words, store, corpus, is_resumed=True)
    resumed.model.load_state_dict(begun.model.state_dict())
    before, after = (task.batch([0, 1, 2], mirrored=[False] * 3) for task in (begun, resumed))
    assert torch.equal(before.concept_scores, after.concept_scores)
