"""How much longer does a description take than what it cannot do without?

The floor is to decode a clip and to run the bare backbone once over the frames that the model looks at. Both
are done in one process, warm, in rounds that alternate, because machines are noisy; a ratio is taken within a
round, and the table gives the median and the range.

Then a clip is described by the command in a process of its own, which tells where the time goes from a cold
start, and `ctsan --help` is timed.

    python bench/predict.py CLIP… [--model RUN]

On a machine that others use as well, --busy counts the CPU time of all threads in place of the clock's.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tabulate import tabulate

from ctsan.inference.predictor import Predictor
from ctsan.io.device import usable_cores
from ctsan.video.backbones import find_backbone
from ctsan.video.engine import load_engine
from ctsan.video.frames import sample_frames, subsample


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("clips", nargs="+", type=Path)
    parser.add_argument("--model", default="default")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--busy", action="store_true")
    asked = parser.parse_args()
    clock = time.process_time if asked.busy else time.perf_counter

    predictor = Predictor.load(asked.model)
    run = next(run for run in predictor.runs if run.task == "describe")
    backbone = find_backbone(run.recipe.backbone)
    engine = load_engine(backbone, threads=usable_cores())

    def floor() -> None:
        for clip in asked.clips:
            pixels = sample_frames(clip, size=backbone.image_size).pixels
            engine(pixels[subsample(len(pixels), run.settings.model.max_frames)])

    def one_by_one() -> None:
        for clip in asked.clips:
            predictor.describe(clip)

    def all_at_once() -> None:
        list(predictor.describe_all(asked.clips))

    ways = {"floor": floor, "one by one": one_by_one, "in one call": all_at_once}
    for way in ways.values():  # warm
        way()
    rounds = [{name: _seconds(way, clock) for name, way in ways.items()} for _ in range(asked.rounds)]
    rows = []
    for name in ways:
        ratios = [each[name] / each["floor"] for each in rounds]
        seconds = statistics.median(each[name] for each in rounds) / len(asked.clips)
        rows.append(
            (name, f"{1000 * seconds:.0f}", f"{statistics.median(ratios):.2f}")
            + ((f"{min(ratios):.2f} to {max(ratios):.2f}",) if name != "floor" else ("",))
        )
    print(tabulate(rows, headers=("", "ms a clip", "times the floor", "range")))

    print("\nFrom a cold start:", flush=True)
    command = [sys.executable, "-m", "ctsan"]
    arguments = ["describe", str(asked.clips[0]), "--model", str(asked.model), "--timing"]
    whole = _seconds(
        lambda: subprocess.run([*command, *arguments], check=True, stderr=subprocess.STDOUT),
        time.perf_counter,
    )
    print(f"\nthe whole command, with Python's own beginning and end: {whole:.2f} s")
    told = _seconds(
        lambda: subprocess.run([*command, "--help"], check=True, stdout=subprocess.DEVNULL), time.perf_counter
    )
    print(f"ctsan --help: {told:.2f} s")


def _seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


if __name__ == "__main__":
    main()
