"""How much longer does a description take than decoding and the backbone alone, warm and from a cold start?

    python bench/predict.py CLIP… [--model RUN] [--before CHECKOUT]

Warm: the floor is to decode a clip and to run the bare backbone once over the frames that the model looks at.
All ways are timed in one process, in rounds that alternate, because machines are noisy; a ratio is taken
within a round, and the table gives the median and the range.

Cold: the commands `describe` of the first clip, `search` in a library of all clips and `--help`, each in a
process of its own, with its wall-clock and CPU seconds and its peak memory.

With --before, the other checkout of ctsan is measured in the same run, in rounds that alternate too. On a
machine that others use as well, read the column of CPU seconds, and --busy counts the CPU time of all threads
in place of the clock's in the first table.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tabulate import tabulate

_SOURCES = Path(__file__).parents[1] / "src"


class Cost(NamedTuple):
    """Of one process."""

    seconds: float
    cpu_seconds: float
    peak_mb: float


class Checkout(NamedTuple):
    """What is measured."""

    source: Path
    cache: Path  # of its own, because each version prepares and checks networks in its way


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("clips", nargs="+", type=Path)
    parser.add_argument("--model", default="default")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--before", type=Path, help="a checkout to compare with")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--warm", action="store_true", help="only print seconds of warm rounds, as JSON")
    options = parser.parse_args()
    if options.warm:
        clock = time.process_time if options.busy else time.perf_counter
        print(json.dumps(warm_rounds(options.clips, options.model, options.rounds, clock)))
        return
    sources = {"before": options.before / "src"} if options.before else {}
    sources["now"] = _SOURCES
    with tempfile.TemporaryDirectory() as folder:
        caches = {name: Path(folder) / f"cache-{name}" for name in sources}
        measure({name: Checkout(source, caches[name]) for name, source in sources.items()}, options, folder)


def measure(checkouts: Mapping[str, Checkout], options: argparse.Namespace, folder: str) -> None:
    """Print both tables."""
    arguments = [*map(str, options.clips), "--warm", "--model", options.model]
    arguments += ["--rounds", str(options.rounds), *(["--busy"] if options.busy else [])]
    rows = []
    for name, checkout in checkouts.items():
        command = [sys.executable, __file__, *arguments]
        environment = _environment(checkout)
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout
        rows += warm_table(name, json.loads(printed), len(options.clips))
    print(tabulate(rows, headers=("", "way", "ms a clip", "times the floor", "range")))

    print("\nFrom a cold start:", flush=True)
    costs = cold_rounds(checkouts, options.clips, options.model, options.rounds, Path(folder))
    table = []
    for (name, asked), of_command in costs.items():
        seconds, cpu_seconds, peaks = zip(*of_command, strict=True)
        medians = (f"{statistics.median(cpu_seconds):.2f}", f"{statistics.median(peaks):.0f}")
        table.append((name, asked, f"{statistics.median(seconds):.2f}", f"{min(seconds):.2f}", *medians))
    print(tabulate(table, headers=("", "command", "seconds", "at best", "CPU seconds", "peak MB")))


def warm_rounds(
    clips: Sequence[Path], model_name: str, rounds: int, clock: Callable[[], float]
) -> list[dict[str, float]]:
    """Seconds of each way to go over all clips, by round."""
    from ctsan.inference.predictor import Predictor
    from ctsan.io.device import usable_cores
    from ctsan.video.backbones import find_backbone
    from ctsan.video.engine import load_engine
    from ctsan.video.frames import sample_frames, subsample

    predictor = Predictor.load(model_name)
    model = next(model for model in predictor.models if model.task == "describe")
    backbone = find_backbone(model.recipe.backbone)
    engine = load_engine(backbone, threads=usable_cores())

    def floor() -> None:
        for clip in clips:
            pixels = sample_frames(clip, size=backbone.image_size).pixels
            engine(pixels[subsample(len(pixels), model.settings.model.max_frames)])

    def one_by_one() -> None:
        for clip in clips:
            predictor.describe(clip)

    def all_at_once() -> None:
        list(predictor.describe_all(clips))

    ways = {"floor": floor, "one by one": one_by_one, "in one call": all_at_once}
    for way in ways.values():  # warm
        way()
    return [{name: _seconds(way, clock) for name, way in ways.items()} for _ in range(rounds)]


def warm_table(name: str, rounds: Sequence[Mapping[str, float]], num_clips: int) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for way in rounds[0]:
        ratios = [times[way] / times["floor"] for times in rounds]
        seconds = statistics.median(times[way] for times in rounds) / num_clips
        span = f"{min(ratios):.2f} to {max(ratios):.2f}" if way != "floor" else ""
        rows.append((name, way, f"{1000 * seconds:.0f}", f"{statistics.median(ratios):.2f}", span))
    return rows


def cold_rounds(
    checkouts: Mapping[str, Checkout], clips: Sequence[Path], model: str, rounds: int, folder: Path
) -> dict[tuple[str, str], list[Cost]]:
    """What commands cost, by checkout and command; checkouts alternate."""
    costs: dict[tuple[str, str], list[Cost]] = {}
    commands: dict[str, dict[str, list[str]]] = {}
    for name, checkout in checkouts.items():
        store = str(folder / name)
        process_cost(["index", *map(str, clips), "--store", store], checkout)
        commands[name] = {
            "describe": ["describe", str(clips[0]), "--model", model],
            "search": ["search", "a man is singing", "--store", store],
            "--help": ["--help"],
        }
    for _ in range(rounds):
        for command in ("describe", "search", "--help"):
            for name, checkout in checkouts.items():
                cost = process_cost(commands[name][command], checkout)
                costs.setdefault((name, command), []).append(cost)
    return dict(sorted(costs.items(), key=lambda item: list(checkouts).index(item[0][0])))


def process_cost(arguments: Sequence[str], checkout: Checkout) -> Cost:
    """What a command of a checkout costs in a process of its own."""
    command = [sys.executable, "-m", "ctsan", *arguments]
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=_environment(checkout))
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        printed = output.read().decode(errors="replace")
        if process.returncode and "Nothing matches" not in printed:  # an answer of `search` too
            raise SystemExit(f"{' '.join(command)} failed: {printed}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(seconds, cpu, usage.ru_maxrss / 1024)


def _environment(checkout: Checkout) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(checkout.source), "CTSAN_CACHE": str(checkout.cache)}


def _seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


if __name__ == "__main__":
    main()
