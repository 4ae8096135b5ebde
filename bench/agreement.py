"""Do ONNX Runtime and PyTorch give the same answers about clips, and in what time?

    OMP_NUM_THREADS=1 python bench/agreement.py CLIP… [--model RUN]

Each clip is decoded and seen by the backbone once. Both sides then describe it, list the confidences of all
concept candidates, fill a blank and choose between sentences; tasks that the runs do not answer are left out.
Prints how many answers differ, the largest differences between their numbers, and the CPU time of describing.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ctsan.inference.loading import load_model
from ctsan.inference.predictor import EncodedClip, Predictor
from ctsan.inference.torch_model import load_torch_model
from ctsan.runs.trained_run import load_runs

Answer = tuple[str, str, list[float]]  # what was asked, the answer, and its numbers

_BLANK = "a _____ is doing something"
_SENTENCES = ("a man is driving a car", "a cup of coffee on a table", "people dance on a stage")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("clips", nargs="+", type=Path)
    parser.add_argument("--model", type=Path, default=Path("default"))
    options = parser.parse_args()
    onnx, pytorch = load_both(options.model)
    differing: Counter[str] = Counter()
    largest: dict[str, float] = {}
    milliseconds = {"ONNX Runtime": 0.0, "PyTorch": 0.0}
    for path in options.clips:
        clip = onnx.encode(path)
        for name, predictor in zip(milliseconds, (onnx, pytorch), strict=True):
            start = time.process_time()
            predictor.describe(clip)
            milliseconds[name] += 1000 * (time.process_time() - start)
        for own, other in zip(answers(onnx, clip), answers(pytorch, clip), strict=True):
            asked = own[0]
            differing[asked] += own[1] != other[1]
            difference = np.abs(np.subtract(own[2], other[2])).max()
            largest[asked] = max(largest.get(asked, 0.0), float(difference))
    print(f"{len(options.clips)} clips")
    for asked, difference in largest.items():
        print(f"{asked}: {differing[asked]} answers differ, numbers by at most {difference:.1e}")
    for name, spent in milliseconds.items():
        print(f"{name}: {spent / len(options.clips):.0f} ms of CPU time per description")


def load_both(model: Path) -> tuple[Predictor, Predictor]:
    """The runs of a folder with ONNX Runtime, and the same runs with PyTorch."""
    runs = load_runs([model])
    onnx, pytorch = ([load(run) for run in runs] for load in (load_model, load_torch_model))
    return Predictor(onnx), Predictor(pytorch)


def answers(predictor: Predictor, clip: EncodedClip) -> Iterator[Answer]:
    tasks = predictor.tasks
    if "describe" in tasks:
        captions = predictor.describe(clip, n_best=5).captions
        yield "describe", captions[0].text, [caption.score for caption in captions]
    concepts = " ".join(each.word for each in predictor.concepts(clip))
    candidates = sorted(predictor.concepts(clip, all=True), key=lambda each: each.word)
    yield "concepts", concepts, [each.confidence for each in candidates]
    if "fill" in tasks:
        filling = predictor.fill(clip, _BLANK)
        yield "fill", filling.filled, [answer.probability for answer in filling.blanks[0].answers]
    if "choose" in tasks:
        choice = predictor.choose(clip, _SENTENCES)
        yield "choose", str(choice.choice), [sentence.score for sentence in choice.choices]


if __name__ == "__main__":
    main()
