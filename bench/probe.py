"""How much do the features of each backbone tell of the concept words, and what do they cost?

A linear probe: a clip's maps averaged over time and space, one ridge regression for all concept words. Its
precision at 10 is the share of the ten surest words that somebody used for the clip. The default backbone is
chosen by cross-validation within the training clips, folds apart by source; the test split is printed beside
it and chooses nothing. Intervals are 95 %, bootstrapped over clips.

    python bench/probe.py CORPUS --features DIR [DIR …]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate
from tqdm import tqdm

from ctsan.data.corpus import Clip
from ctsan.data.reading import read_corpus
from ctsan.device import usable_cores
from ctsan.evaluation.linear_probe import TOP, Matrix, mean_features, precision_at_top, ridge_scores
from ctsan.text.concepts import Concepts
from ctsan.text.tagging import load_tagger
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import Vocabulary
from ctsan.video.backbones import find_backbone
from ctsan.video.engine import BATCH, load_engine
from ctsan.video.store import FeatureStore

FOLDS = 5
RIDGES = (1, 3, 10, 30, 100, 300, 1000)


def folds_by_source(clips: Sequence[Clip]) -> NDArray[np.int64]:
    sources = sorted({clip.source for clip in clips})
    order = np.random.default_rng(0).permutation(len(sources))
    fold = {source: int(order[n]) % FOLDS for n, source in enumerate(sources)}
    return np.array([fold[clip.source] for clip in clips])


def cross_validated(x: Matrix, y: Matrix, folds: NDArray[np.int64], ridge: float) -> Matrix:
    values = np.zeros(len(x), dtype=np.float32)
    for fold in range(FOLDS):
        out = folds == fold
        values[out] = precision_at_top(ridge_scores(x[~out], y[~out], x[out], ridge=ridge), y[out])
    return values


def interval(values: Matrix) -> str:
    random = np.random.default_rng(0)
    means = [random.choice(values, len(values)).mean() for _ in range(2000)]
    return f"{values.mean():.3f} [{np.quantile(means, 0.025):.3f}, {np.quantile(means, 0.975):.3f}]"


def milliseconds_per_frame(name: str, weights: Path | None) -> float:
    backbone = find_backbone(name, weights)
    run = load_engine(backbone, engine="onnxruntime", threads=1)
    size = backbone.image_size
    batch = np.random.default_rng(0).integers(0, 256, (BATCH, size, size, 3), dtype=np.uint8)
    run(batch)
    rounds = 20
    started = time.perf_counter()
    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(lambda _: run(batch), range(rounds)))
    return (time.perf_counter() - started) / (rounds * BATCH) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--features", type=Path, nargs="+", required=True, help="folders, one a backbone")
    parser.add_argument("--weights", type=Path, help="of a ResNet among them, for its time")
    arguments = parser.parse_args()

    corpus = read_corpus(arguments.corpus)
    train, test = corpus.split("train"), corpus.split("test")
    sentences = [tokenize(caption) for caption in corpus.captions("train")]
    concepts = Concepts.build(sentences, Vocabulary.build(sentences), load_tagger())

    def truth(clips: Sequence[Clip]) -> Matrix:
        y = np.zeros((len(clips), len(concepts.words)), dtype=np.float32)
        for row, clip in enumerate(clips):
            y[row, concepts.reference(clip.captions)] = 1
        return y

    y, test_y, folds = truth(train), truth(test), folds_by_source(train)
    commonest = np.tile(y.mean(axis=0), (len(train), 1))
    always = precision_at_top(commonest, y), precision_at_top(commonest[: len(test)], test_y)
    rows = [("(always the commonest words)", "", interval(always[0]), interval(always[1]), "")]
    for folder in tqdm(arguments.features, desc="probing"):
        store = FeatureStore(folder)
        name = store.manifest.recipe.backbone
        x, test_x = mean_features(store, train), mean_features(store, test)
        tried = {ridge: cross_validated(x, y, folds, ridge) for ridge in RIDGES}
        best = max(tried, key=lambda ridge: float(tried[ridge].mean()))
        scores = ridge_scores(x, y, test_x, ridge=best)
        cost = milliseconds_per_frame(name, arguments.weights if name.startswith("resnet") else None)
        tested = interval(precision_at_top(scores, test_y))
        rows.append((name, f"{best}", interval(tried[best]), tested, f"{cost:.1f}"))
    print(f"{len(concepts.words)} concept words, {len(train)} training clips, {len(test)} test clips")
    headers = ("backbone", "ridge", f"P@{TOP}, {FOLDS} folds of train", f"P@{TOP}, test", "ms/frame")
    print(tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
