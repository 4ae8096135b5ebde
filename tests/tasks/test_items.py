"""Blank, choice and retrieval: each learns twelve clips by heart, with and without concept words.

Worst of ten trainings by `make margins` (five seeds, each with and without jitter of 1e-4), and the bound:

- the lead of the right answer to the hardest question (> .3) with and without concept words: .998 and .989
  for blanks, 1.01 and 1.01 for choices, 3.30 and 3.51 for queries
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from built_runs import run_of
from ctsan.config import Settings, load_settings
from ctsan.data.corpus import BlankItem, ChoiceItem, Clip, Corpus, Item, ItemTask, QueryItem
from ctsan.inference.loading import load_model
from ctsan.tasks.building import build_model, build_task
from ctsan.text.sentences import encode_blanks
from ctsan.text.vocabulary import BLANK, UNK
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore
from margins import Margins, Start, lead

SETTINGS = (
    "model.hidden_dim=16",
    "model.embedding_dim=8",
    "model.dropout=0",
    "detector.attention_dim=4",
    "detector.num_concepts=3",
    "detector.dropout=0",
    "retrieval.sketch_dim=64",
    "retrieval.joint_dim=16",
    "retrieval.dropout=0",
    "loss.label_smoothing=0",
    "loss.concept_weight=1",
)


def blanks(clips: Sequence[Clip]) -> list[BlankItem]:
    return [BlankItem(clip.id, f"a _____ {clip.id.split()[1]}", clip.id.split()[0]) for clip in clips]


def choices(clips: Sequence[Clip]) -> list[ChoiceItem]:
    """The clip's own sentence and those of the four clips after it; the right one moves about."""
    items = []
    for place, clip in enumerate(clips):
        others = [clips[(place + step) % len(clips)].captions[0] for step in (1, 2, 3, 4)]
        answer = place % 5
        items.append(ChoiceItem(clip.id, (*others[:answer], clip.captions[0], *others[answer:]), answer))
    return items


def queries(clips: Sequence[Clip]) -> list[QueryItem]:
    return [QueryItem(clip.captions[0], clip.id) for clip in clips]


ITEMS: dict[ItemTask, Callable[[Sequence[Clip]], Sequence[Item]]] = {
    "fill": blanks,
    "choose": choices,
    "rank": queries,
}


def settings_of(*overrides: str) -> Settings:
    return load_settings("laptop", (*SETTINGS, *overrides))


def make(
    kind: ItemTask,
    words: Words,
    clips: Sequence[Clip],
    store: FeatureStore,
    *overrides: str,
    bare: bool = False,
    seed: int = 0,
) -> Any:
    """A task on a corpus that brings items of its own; a bare one brings none."""
    settings = settings_of(*overrides)
    items = ITEMS[kind](clips)
    corpus = Corpus("animals", Path(), "own", tuple(clips), {} if bare else {(kind, "train"): tuple(items)})
    model = build_model(kind, settings, words, grid=store.grid, channels=store.channels, seed=seed)
    return build_task(kind, settings, words, store, corpus, model=model, split="train")


@pytest.mark.parametrize("detector", ["true", "false"])
@pytest.mark.parametrize(("kind", "steps"), [("fill", 60), ("choose", 120), ("rank", 120)])
def test_it_learns_twelve_clips_by_heart(
    words: Words,
    clips: list[Clip],
    store: FeatureStore,
    kind: ItemTask,
    steps: int,
    detector: str,
    start: Start,
    margins: Margins,
) -> None:
    enabled = f"detector.enabled={detector}"
    task = make(kind, words, clips, store, enabled, seed=start.seed)
    optimiser = torch.optim.Adam(task.model.parameters(), lr=0.02)
    # At a rate that stays, the last step may be one that throws it back.
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, total_iters=steps)
    everything = range(len(task.buckets))
    torch.manual_seed(start.seed)
    for _ in range(steps):
        task.model.train()
        losses = task.losses(task.batch(everything, mirrored=[False] * len(everything)))
        optimiser.zero_grad()
        torch.autograd.backward(torch.stack(list(losses.values())).sum())
        optimiser.step()
        schedule.step()
    metrics = task.evaluate()
    items = ITEMS[kind](clips)
    model = load_model(run_of(kind, settings_of(enabled), words, store, task.model))
    margins.above("lead", lead(model, items, store), 0.3)
    assert metrics["R@1" if kind == "rank" else "accuracy"] == 1.0
    assert ("precision" in metrics) == (detector == "true")
    assert len(task.examples()) == len(clips)
    assert all(example.score == 1 for example in task.examples())


def test_every_concept_candidate_of_a_caption_is_left_out_once(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    task = make("fill", words, clips, store, bare=True)
    batch = task.batch(range(len(task.buckets)), mirrored=[False] * len(task.buckets))
    assert len(batch.answers) == 4 * len(clips)  # animal and deed in either caption
    assert (batch.sentences.gather(1, batch.places[:, None]) == BLANK).all()
    assert ((batch.sentences == BLANK).sum(dim=1) == 1).all()


def test_blanks_and_unknown_words_keep_their_places(words: Words) -> None:
    numbers, places = encode_blanks("a _____ qwertz _____.", words.vocabulary)
    assert numbers == (words.vocabulary.encode(["a"])[0], BLANK, UNK, BLANK)
    assert places == [1, 3]


def test_a_clip_drawn_twice_is_encoded_once_and_is_not_its_own_negative(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    task = make("rank", words, clips, store, "retrieval.captions_per_clip=1")
    batch = task.batch([0, 1, 2], mirrored=[False] * 3)  # two captions of the first clip, one of the second
    assert len(batch.maps) == 2
    assert batch.clip_of_caption.tolist() == [0, 0, 1]
    alone = task.batch([0, 1], mirrored=[False] * 2)
    assert task.losses(alone)["ranking"].item() == 0  # there is nothing to be told apart


def test_a_choice_is_shown_with_all_its_sentences(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    task = make("choose", words, clips, store)
    for example, item in zip(task.examples(), choices(clips), strict=True):
        assert tuple(choice.sentence for choice in example.choices) == item.choices
        assert [choice.is_right for choice in example.choices] == [n == item.answer for n in range(5)]
        [chosen] = [choice for choice in example.choices if choice.is_chosen]
        assert chosen.sentence == example.caption
        assert example.score == chosen.is_right


@pytest.mark.parametrize(
    ("right", "columns", "ranks"),
    [
        (0, [0, 1, 2, 3, 4], [1, 2, 3, 4, 5]),
        (2, [0, 1, 2, 3, 4], [1, 2, 3, 4, 5]),
        (4, [0, 1, 2, 3, 4], [1, 2, 3, 4, 5]),
        (5, [0, 1, 2, 3, 5], [1, 2, 3, 4, 6]),
        (11, [0, 1, 2, 3, 11], [1, 2, 3, 4, 12]),
    ],
)
def test_the_first_five_clips_are_shown_for_a_query_or_four_and_the_right_one(
    words: Words, clips: list[Clip], store: FeatureStore, right: int, columns: list[int], ranks: list[int]
) -> None:
    task = make("rank", words, clips, store)
    scores = -torch.arange(12.0).expand(12, -1)  # the first clip comes first for every query
    answered = task.queries.answered(scores)[right]
    assert [clip.clip for clip in answered.ranked] == [clips[column].id for column in columns]
    assert [clip.rank for clip in answered.ranked] == ranks
    assert [clip.is_right for clip in answered.ranked] == [column == right for column in columns]
    assert answered.num_ranked == 12
    assert answered.score == 1 / (right + 1)


def test_a_shown_rank_is_the_one_that_is_measured_whatever_is_equal(
    words: Words, clips: list[Clip], store: FeatureStore
) -> None:
    few = make("rank", words, clips[:3], store)
    for answered in few.queries.answered(torch.zeros(3, 3)):  # ties count against the right clip
        assert [(clip.rank, clip.is_right) for clip in answered.ranked] == [(1, False), (2, False), (3, True)]
        assert answered.ranked[-1].clip == answered.clip
        assert answered.output["rank"] == 3
