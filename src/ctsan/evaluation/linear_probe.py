"""A linear probe: ridge regression from features to concept words, a cheap first measure of a backbone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ctsan.data.corpus import Clip, Corpus, Split
from ctsan.errors import UsageError
from ctsan.text.concepts import Concepts
from ctsan.text.tagging import load_tagger
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import Vocabulary
from ctsan.video.store import FeatureStore

COMMONEST = "(always the commonest words)"
PENALTY = 3.0  # the best on validation for both EfficientNet-Lite0 (1280 channels) and TinyViT-5M (320)
TOP = 10

Matrix = NDArray[np.float32]


class RidgeRegression:
    """Ridge regression in closed form from standardised features to all targets, for any penalty.

    It solves the normal equations by the eigenvectors of XᵀX, or of XXᵀ if there are fewer clips than
    channels. The decomposition is computed once; each penalty then costs one matrix product.
    """

    def __init__(self, x: Matrix, y: Matrix) -> None:
        """Decompose the standardised features once, for all penalties.

        Args:
            x: (n, C), features of the training clips.
            y: (n, K), targets.
        """
        self.target_mean: Matrix = y.mean(axis=0)
        self._mean, self._std = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64) + 1e-6
        inputs = self._standardised(x)
        centred = y - self.target_mean
        if len(inputs) < inputs.shape[1]:
            self._eigenvalues, vectors = np.linalg.eigh(inputs @ inputs.T)
            self._basis, self._targets = inputs.T @ vectors, vectors.T @ centred
        else:
            self._eigenvalues, self._basis = np.linalg.eigh(inputs.T @ inputs)
            self._targets = self._basis.T @ (inputs.T @ centred)

    def predict(self, x: Matrix, *, penalty: float = PENALTY) -> Matrix:
        """Predict targets (m, K); features are standardised as those of the training clips.

        Args:
            x: (m, C).
            penalty: λ; the loss adds λ · C · ‖w‖².
        """
        shrunk = self._targets / (self._eigenvalues + penalty * x.shape[1])[:, None]
        predicted: Matrix = (self._standardised(x) @ self._basis @ shrunk + self.target_mean).astype(
            np.float32
        )
        return predicted

    def _standardised(self, x: Matrix) -> NDArray[np.float64]:
        standardised: NDArray[np.float64] = (x - self._mean) / self._std
        return standardised


def probe_words(corpus: Corpus, stores: Mapping[str, FeatureStore]) -> dict[str, float]:
    """Precision at 10 of predicted concept words on the clips of val and test, per store.

    The probe learns from the training clips' features, averaged over time and space. The entry `COMMONEST`
    is the baseline without features: the most frequent words for every clip.

    Raises:
        UsageError: there are too few captioned clips with features.
    """
    clips = probe_clips(corpus, stores.values())
    train, held_out = clips["train"], [*clips["val"], *clips["test"]]
    concepts = train_concepts(train)
    train_y, y = word_truth(concepts, train), word_truth(concepts, held_out)
    commonest = np.tile(train_y.mean(axis=0), (len(y), 1))
    precisions = {COMMONEST: float(precision_at_top(commonest, y).mean())}
    for name, store in stores.items():
        regression = RidgeRegression(mean_features(store, train), train_y)
        scores = regression.predict(mean_features(store, held_out))
        precisions[name] = float(precision_at_top(scores, y).mean())
    return precisions


def probe_clips(corpus: Corpus, stores: Collection[FeatureStore]) -> dict[Split, list[Clip]]:
    """The captioned clips of train, val and test that have features in every store.

    Raises:
        UsageError: there is no clip to train on, or none to measure on.
    """
    splits: tuple[Split, ...] = ("train", "val", "test")
    clips = {
        split: [
            clip
            for clip in corpus.split(split)
            if clip.captions and all(clip.id in store for store in stores)
        ]
        for split in splits
    }
    held_out = len(clips["val"]) + len(clips["test"])
    if not clips["train"] or not held_out:
        raise UsageError(
            f"{corpus.place}: a probe learns from captioned clips of the split 'train' and is measured on "
            f"those of 'val' and 'test'; there are {len(clips['train'])} and {held_out}. 'ctsan corpus "
            "check' shows the splits."
        )
    return clips


def train_concepts(train: Sequence[Clip]) -> Concepts:
    """The concept candidates of the training captions."""
    sentences = [tokenize(caption) for clip in train for caption in clip.captions]
    return Concepts.build(sentences, Vocabulary.build(sentences), load_tagger())


def word_truth(concepts: Concepts, clips: Sequence[Clip]) -> Matrix:
    """(clips, V), 1 where a candidate is in the clip's captions."""
    truth = np.zeros((len(clips), len(concepts)), dtype=np.float32)
    for row, clip in enumerate(clips):
        truth[row, concepts.reference(clip.captions)] = 1
    return truth


def mean_features(store: FeatureStore, clips: Sequence[Clip]) -> Matrix:
    """(clips, C), features averaged over time and space."""
    return np.stack([store[clip.id].maps.astype(np.float32).mean(axis=(0, 1, 2)) for clip in clips])


def precision_at_top(scores: Matrix, truth: Matrix, *, top: int = TOP) -> Matrix:
    """The share of the `top` words with the highest scores that are in the clip's captions, (clips,)."""
    highest = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    precision: Matrix = np.take_along_axis(truth, highest, axis=1).mean(axis=1)
    return precision


def precision_by_rise(scores: Matrix, frequency: Matrix, truth: Matrix, *, top: int = TOP) -> Matrix:
    """`precision_at_top` of the words ranked by p - q, the score p minus the training frequency q.

    A frequent word ranks high only if its score exceeds its frequency.

    Args:
        frequency: (V,), the share of training clips with the word in their captions.
    """
    return precision_at_top(scores - frequency, truth, top=top)
