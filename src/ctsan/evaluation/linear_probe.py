"""What a ridge regression reads out of features: a first, cheap measure of a backbone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ctsan.data.corpus import Clip, Corpus
from ctsan.errors import UsageError
from ctsan.text.concepts import Concepts
from ctsan.text.tagging import load_tagger
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import Vocabulary
from ctsan.video.store import FeatureStore

COMMONEST = "(always the commonest words)"
RIDGE = 3.0  # by cross-validation on web clips the best for all networks of bench/probe.py
TOP = 10

Matrix = NDArray[np.float32]


def probe_words(clips: Corpus, stores: Mapping[str, FeatureStore]) -> dict[str, float]:
    """Precision of the ten surest concept words on clips of val and test, for each store and for no features.

    The probe learns from the training clips' features, averaged over time and space.

    Raises:
        UsageError: there are too few captioned clips with features.
    """

    def usable(split: Sequence[Clip]) -> list[Clip]:
        return [clip for clip in split if clip.captions and all(clip.id in own for own in stores.values())]

    train, held_out = usable(clips.split("train")), usable([*clips.split("val"), *clips.split("test")])
    if not train or not held_out:
        raise UsageError(
            f"{clips.root}: a probe learns from captioned clips of the split 'train' and is measured on "
            f"those of 'val' and 'test', and there are {len(train)} and {len(held_out)}. 'ctsan corpus "
            "check' shows the splits."
        )
    sentences = [tokenize(caption) for clip in train for caption in clip.captions]
    concepts = Concepts.build(sentences, Vocabulary.build(sentences), load_tagger())

    def truth(some: Sequence[Clip]) -> Matrix:
        found = np.zeros((len(some), len(concepts.words)), dtype=np.float32)
        for row, clip in enumerate(some):
            found[row, concepts.reference(clip.captions)] = 1
        return found

    train_y, y = truth(train), truth(held_out)
    commonest = np.tile(train_y.mean(axis=0), (len(y), 1))
    found = {COMMONEST: float(precision_at_top(commonest, y).mean())}
    for name, store in stores.items():
        scores = ridge_scores(mean_features(store, train), train_y, mean_features(store, held_out))
        found[name] = float(precision_at_top(scores, y).mean())
    return found


def mean_features(store: FeatureStore, clips: Sequence[Clip]) -> Matrix:
    return np.stack([store[clip.id].maps.astype(np.float32).mean(axis=(0, 1, 2)) for clip in clips])


def ridge_scores(train_x: Matrix, train_y: Matrix, x: Matrix, *, ridge: float = RIDGE) -> Matrix:
    """A ridge regression from standardised features to all words at once, solved in closed form."""
    mean, std = train_x.mean(axis=0), train_x.std(axis=0) + 1e-6
    inputs, others = (train_x - mean) / std, (x - mean) / std
    often = train_y.mean(axis=0)
    kernel = inputs @ inputs.T / inputs.shape[1]  # in the dual: there are fewer clips than channels
    weights = np.linalg.solve(kernel + ridge * np.eye(len(kernel), dtype=np.float32), train_y - often)
    scores: Matrix = others @ inputs.T / inputs.shape[1] @ weights + often
    return scores


def precision_at_top(scores: Matrix, truth: Matrix, *, top: int = TOP) -> Matrix:
    """The share of the surest words that somebody used for the clip: one value a clip."""
    surest = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    precision: Matrix = np.take_along_axis(truth, surest, axis=1).mean(axis=1)
    return precision
