"""Clips of a frozen encoder are encoded once: the same losses and gradients as with maps in every batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from built_runs import encode, run_of
from ctsan.data.corpus import ChoiceItem, Clip, Corpus, Item, ItemTask, Split
from ctsan.model.concept_detector import LearntConceptSource
from ctsan.tasks.blank import BlankTask
from ctsan.tasks.description import DescriptionTask
from ctsan.tasks.registry import task_settings
from ctsan.text.words import Words
from ctsan.training.initialisation import set_up_task
from ctsan.video.store import FeatureStore

SMALL = (
    "model.hidden_dim=8",
    "model.embedding_dim=8",
    "model.dropout=0",
    "detector.dropout=0",
    "detector.num_concepts=3",
    "detector.probe=none",
    "training.out_of_fold=true",
    "retrieval.sketch_dim=20",
    "retrieval.joint_dim=8",
    "retrieval.dropout=0",
)


def animals(clips: list[Clip], store: FeatureStore) -> Corpus:
    """With a question about each training clip, whose captions are too few to build some from."""
    train, asked = clips[:-2], [replace(clip, split="val") for clip in clips[-2:]]
    choices = [
        ChoiceItem(clip.id, (clip.captions[0], *(other.captions[0] for other in train if other != clip)), 0)
        for clip in train
    ]
    items: dict[tuple[ItemTask, Split], tuple[Item, ...]] = {("choose", "train"): tuple(choices)}
    return Corpus("animals", store.folder, "own", (*train, *asked), items=items)


@pytest.mark.parametrize("task", ["describe", "fill", "choose", "rank"])
def test_losses_and_gradients_are_those_of_live_encodings(
    task: str, words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    corpus = animals(clips, store)
    settings = task_settings(task, "laptop", (*SMALL, "training.freeze_clip_encoder=true"))
    frozen = set_up_task(task, settings, words, store, corpus)
    live = set_up_task(task, task_settings(task, "laptop", SMALL), words, store, corpus)
    live.model.load_state_dict(frozen.model.state_dict())
    some = list(range(min(3, len(frozen.buckets))))
    batches = [each.batch(some, mirrored=[False] * len(some)) for each in (frozen, live)]
    assert not batches[0].maps.numel()
    assert batches[1].frozen is None
    losses = [each.losses(batch) for each, batch in zip((frozen, live), batches, strict=True)]
    assert losses[0].keys() == losses[1].keys() - {"concepts"}  # what is frozen has no loss of its own
    gradients = []
    for each, own in zip((frozen, live), losses, strict=True):
        torch.autograd.backward(torch.stack([own[name] for name in losses[0]]).sum())
        gradients.append(
            {
                name: weights.grad
                for name, weights in each.model.named_parameters()
                if weights.grad is not None and not name.startswith("clip_encoder.")
            }
        )
    for name, loss in losses[0].items():
        torch.testing.assert_close(loss, losses[1][name])
    assert gradients[0]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-4, rtol=1e-3)


def test_weights_that_a_checkpoint_brings_later_are_those_that_encode(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    corpus = animals(clips, store)
    settings = task_settings("fill", "laptop", (*SMALL, "training.freeze_clip_encoder=true"))
    task = set_up_task("fill", settings, words, store, corpus)
    assert isinstance(task, BlankTask)
    with torch.no_grad():
        for weights in task.model.clip_encoder.encode_video.parameters():
            weights.add_(torch.randn_like(weights))
    frozen = task.batch([0], mirrored=[False]).frozen
    assert frozen is not None
    live = encode(run_of("fill", settings, words, store, task.model), [store[task.clips.train[0].id].maps])
    torch.testing.assert_close(frozen.state.hidden, live.state.hidden)


def test_words_that_are_redrawn_and_frames_that_are_attended_to_are_not_frozen(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    corpus = animals(clips, store)
    for own in (("detector.kind=random",), ("model.decoder=temporal", "detector.enabled=false")):
        overrides = (*SMALL, *own, "training.freeze_clip_encoder=true")
        settings = task_settings("describe", "laptop", overrides)
        batch = set_up_task("describe", settings, words, store, corpus).batch([0], mirrored=[False])
        assert batch.frozen is None
        assert batch.maps.numel()
    fixed = ("detector.kind=random", "detector.random_words=fixed", "training.freeze_clip_encoder=true")
    settings = task_settings("describe", "laptop", (*SMALL, *fixed))
    assert set_up_task("describe", settings, words, store, corpus).batch([0], mirrored=[False]).frozen


def test_weighted_words_out_of_fold_let_the_language_loss_reach_the_detector(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    settings = task_settings("describe", "laptop", (*SMALL, "detector.confidence_weighted=true"))
    task = set_up_task("describe", settings, words, store, animals(clips, store))
    batch = task.batch([0, 1], mirrored=[False] * 2)
    assert batch.concept_scores.shape[1]
    torch.autograd.backward(task.losses(batch)["words"])
    assert isinstance(task, DescriptionTask)
    detector = task.model.clip_encoder.detector
    assert isinstance(detector, LearntConceptSource)
    assert detector.name.weight.grad is not None
    assert detector.name.weight.grad.abs().max() > 0
