"""Twelve clips of animals and what they do, small enough to be learnt by heart in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ctsan.data.corpus import Clip
from ctsan.text.concepts import Concept, Concepts
from ctsan.text.vocabulary import SPECIALS, Vocabulary
from ctsan.text.words import Words
from ctsan.video.clip_index import ClipRecord
from ctsan.video.store import (
    FeatureStore,
    Manifest,
    Maps,
    Recipe,
    StoredFeatures,
    write_clip,
    write_manifest,
)
from margins import Start

GRID, CHANNELS = (2, 2), 6
ANIMALS, DEEDS = ("dog", "cat", "bird", "horse"), ("runs", "sleeps", "eats")
WORDS = ("a", *ANIMALS, *DEEDS)


@pytest.fixture(scope="module")
def words() -> Words:
    vocabulary = Vocabulary((*SPECIALS, *WORDS), (*[0] * len(SPECIALS), *[9] * len(WORDS)))
    concepts = Concepts(tuple(Concept(word, "noun", 9) for word in WORDS[1:]))
    embedding = np.random.default_rng(0).normal(size=(len(vocabulary), 8)).astype(np.float32)
    return Words(vocabulary, concepts, embedding)


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


def maps_of(store: FeatureStore, clips: Sequence[Clip]) -> list[Maps]:
    return [store[clip.id].maps for clip in clips]


@pytest.fixture(scope="module")
def clips() -> list[Clip]:
    """Every animal does everything, and two people say so."""
    pairs = [(animal, deed) for animal in ANIMALS for deed in DEEDS]
    return [
        Clip(
            id=f"{animal} {deed}",
            path=Path("none"),
            captions=(f"a {animal} {deed}", f"{animal} {deed}"),
            split="train",
        )
        for animal, deed in pairs
    ]


@pytest.fixture(scope="module")
def store(clips: Sequence[Clip], start: Start, tmp_path_factory: pytest.TempPathFactory) -> FeatureStore:
    """Maps from which animal and deed can be told: the deed by the order of two frames among others."""
    folder = tmp_path_factory.mktemp("store") / "features"
    recipe = Recipe("mine", GRID, CHANNELS, mirrored=False, details={"imported": True})
    random = np.random.default_rng(0)
    records = {}
    for number, clip in enumerate(clips):
        animal, deed = divmod(number, len(DEEDS))
        maps = 0.1 * random.normal(size=(3 + number % 3, *GRID, CHANNELS))
        maps[:, animal // 2, animal % 2, animal] += 3
        maps[deed, :, :, 4] += 3
        write_clip(folder, clip.id, StoredFeatures(maps.astype(np.float16), None), recipe="", source="")
        records[clip.id] = ClipRecord(len(maps), 0, 0)
    write_manifest(folder, Manifest(recipe, records, {}))
    return FeatureStore(start.features(folder, folder.with_name("jittered")))
