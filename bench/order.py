"""Does the procedural corpus need the order of its frames?

Opposites such as "moves left" and "moves right", or "grows" and "shrinks", show the same pictures in another
order. A linear probe that must tell one from the other is given the maps averaged over time (a bag of
features), and then the same maps averaged over each third of the clip, in order. The first must stay at
chance, the second must not. Accuracy over five folds, with 95 % intervals bootstrapped over clips.

    ctsan corpus make shapes --clips 1000 && ctsan features shapes --out features
    python bench/order.py shapes --features features
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from ctsan.data.reading import read_corpus
from ctsan.evaluation.clip_statistics import mean
from ctsan.evaluation.linear_probe import Matrix, RidgeRegression
from ctsan.video.store import FeatureStore
from probe import with_interval

FOLDS = 5
PAIRS = (
    ("left", "right"),
    ("up", "down"),
    ("grow", "shrink"),
    ("appear", "disappear"),
    ("enter", "leave"),
    ("approach", "retreat"),
    ("hide", "emerge"),
    ("push", "pull"),
)


def answers(truth: dict[str, list[dict[str, str]]], pair: tuple[str, str]) -> int | None:
    """Which of the two happens in a clip of one event; None if neither or both do."""
    words = {word for event in truth["events"] for word in (event["verb"], event["direction"])}
    sides = [side for side, word in enumerate(pair) if word in words]
    return sides[0] if len(sides) == 1 else None


def accuracy(x: Matrix, y: NDArray[np.int64]) -> Matrix:
    """Right or wrong for every clip, when its fold was left out."""
    fold = np.random.default_rng(0).permutation(len(y)) % FOLDS
    right = np.zeros(len(y), dtype=np.float32)
    both = np.eye(2, dtype=np.float32)[y]
    for number in range(FOLDS):
        out = fold == number
        predicted = RidgeRegression(x[~out], both[~out]).predict(x[out])
        right[out] = predicted.argmax(axis=1) == y[out]
    return right


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, help="made by 'ctsan corpus make'")
    parser.add_argument("--features", type=Path, required=True)
    arguments = parser.parse_args()
    corpus, store = read_corpus(arguments.corpus), FeatureStore(arguments.features)
    truths = [json.loads((corpus.root / str(clip.extra["truth"])).read_text()) for clip in corpus]
    bags, ordered = [], []
    for clip in corpus:
        maps = store[clip.id].maps.astype(np.float32)  # (N, h, w, C)
        bags.append(maps.mean(axis=0).ravel())  # places are kept, only the order of the frames is not
        thirds = [part.mean(axis=0).ravel() for part in np.array_split(maps, 3)]
        ordered.append(np.concatenate([thirds[2] - thirds[0], bags[-1]]))
    rows = []
    pooled: tuple[list[Matrix], list[Matrix]] = ([], [])
    for pair in PAIRS:
        sides = [answers(truth, pair) for truth in truths]
        places = [n for n, side in enumerate(sides) if side is not None]
        y = np.array([sides[n] for n in places])
        results = [accuracy(np.stack([x[n] for n in places]), y) for x in (bags, ordered)]
        for of_feature, result in zip(pooled, results, strict=True):
            of_feature.append(result)
        rows.append((" / ".join(pair), len(places), *(with_interval(mean(result)) for result in results)))
    rows.append(
        (
            "all",
            sum(map(len, pooled[0])),
            *(with_interval(mean(np.concatenate(of_feature))) for of_feature in pooled),
        )
    )
    headers = ("opposites", "clips", "bag of frames", "three thirds in order")
    print(tabulate(rows, headers=headers, tablefmt="github"))


if __name__ == "__main__":
    main()
