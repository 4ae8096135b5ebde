"""Do traces look at what their concept words name?

The corpus is a synthetic one, whose object boxes are known. For every test clip and every correct concept
word that refers to an object, the script takes the trace that raises the word most, and measures the share of
its attention on the object, from the second frame on (attention in the first frame is one-hot). Baselines:

- uniform: uniform attention over all cells;
- other clip: the same attention on the object of the same word in another clip. A gain over it is not due to
  a preference for the middle of the frame.

Means over clips, with 95 % intervals bootstrapped over clips.

    ctsan corpus make shapes --clips 1000 && ctsan train describe --corpus shapes --out run
    python bench/traces.py run shapes
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate
from tqdm import tqdm

from ctsan.data.reading import read_corpus
from ctsan.evaluation.traces import Box, Numbers, attention_on_region
from ctsan.inference.predictor import Predictor, Tracing

SEED = 0
VISIBLE = 0.5  # a thing that is hidden for more than half is not looked for

Truth = dict[str, Any]  # a file of `ctsan corpus make`


def boxes_of(truth: Truth, word: str, times: Numbers) -> list[list[Box]]:
    """The boxes of the objects that a word refers to, at each time."""
    things = truth["words"][word]
    frames = truth["frames"]
    frame_times = np.array([frame["time"] for frame in frames])
    boxes = []
    for time in times:
        frame = frames[int(abs(frame_times - time).argmin())]["objects"]
        visible = [frame[thing] for thing in things if frame[thing]["visible"] >= VISIBLE]
        boxes.append([tuple(thing_state["box"]) for thing_state in visible if thing_state["box"]])
    return boxes


def mass(tracing: Tracing, trace: int, boxes: list[list[Box]]) -> tuple[float, float, float] | None:
    """Mean mass, mass by chance and share of peaks of a trace over frames in which there is something."""
    values = [
        attention_on_region(
            tracing.attention[number, trace].astype(np.float64), tracing.rows, tracing.columns, here
        )
        for number, here in enumerate(boxes)
        if number and here
    ]
    return tuple(np.mean(values, axis=0).tolist()) if values else None


def interval(values: Numbers) -> dict[str, float]:
    """Mean and 95 % interval over clips."""
    random = np.random.default_rng(SEED)
    means = values[random.integers(len(values), size=(10_000, len(values)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return {"mean": float(values.mean()), "low": float(low), "high": float(high)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Do traces look at what their concept words name?")
    parser.add_argument("run", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--clips", type=int, help="only so many")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    predictor = Predictor.load(options.run)
    clips = read_corpus(options.corpus).split("test")[: options.clips]
    tracings = {
        clip.id: predictor.trace(clip.path, beam=1) for clip in tqdm(clips, unit="clip", disable=None)
    }
    truths = {
        clip.id: json.loads((options.corpus / "truth" / f"{clip.path.stem}.json").read_text(encoding="utf-8"))
        for clip in clips
    }
    said_in: dict[str, list[str]] = defaultdict(list)
    for name, truth in truths.items():
        for word in truth["words"]:
            said_in[word].append(name)
    random = np.random.default_rng(SEED)
    rows: list[Numbers] = []
    num_words = 0
    for name, tracing in tracings.items():
        values = []
        for number, concept in enumerate(tracing.raised):
            others = [other for other in said_in[concept.word] if other != name]
            if concept.word not in truths[name]["words"] or not others:
                continue
            trace = int(tracing.shares[number].argmax())
            here = mass(tracing, trace, boxes_of(truths[name], concept.word, tracing.times))
            other = truths[others[random.integers(len(others))]]
            there = mass(tracing, trace, boxes_of(other, concept.word, tracing.times))
            if here and there:
                values.append([*here, there[0], there[2]])
        if values:
            rows.append(np.mean(values, axis=0))
            num_words += len(values)
    on, uniform, peak, elsewhere, peak_elsewhere = np.array(rows).T
    results = {
        "attention on the thing": interval(on),
        "uniform": interval(uniform),
        "other clip": interval(elsewhere),
        "above uniform": interval(on - uniform),
        "above other clip": interval(on - elsewhere),
        "peak on the thing": interval(peak),
        "peak, other clip": interval(peak_elsewhere),
        "peak above other clip": interval(peak - peak_elsewhere),
    }
    if options.json:
        print(json.dumps({"clips": len(rows), "words": num_words} | results))
    else:
        table = [
            [name, "{mean:.3f} [{low:.3f}, {high:.3f}]".format(**result)] for name, result in results.items()
        ]
        print(tabulate(table, headers=[f"{len(rows)} clips, {num_words} words", "mean [95 %]"]))


if __name__ == "__main__":
    main()
