"""How far a test that learns stays from its threshold, whatever the seed and the rounding of the processor.

`make margins` runs every such test from five seeds, each with the features as they are and with relative
Gaussian noise of 1e-4 on them, far more than processors differ by, and prints the worst value of each metric.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tabulate import tabulate

from ctsan.data.corpus import BlankItem, ChoiceItem, Item
from ctsan.inference.ensemble import AskedBlank, fill_blanks, word_ids
from ctsan.inference.loaded_model import (
    BlankFiller,
    ClipEncoding,
    Floats,
    Ints,
    LoadedModel,
    SentenceScorer,
)
from ctsan.video.store import FeatureStore, Maps, read_header, write_clip


@dataclass(frozen=True)
class Start:
    """What a training starts from.

    Attributes:
        seed: 0 in `make test`.
        jitter: standard deviation of the relative noise on features; 0 in `make test`.
    """

    seed: int = 0
    jitter: float = 0.0

    def __str__(self) -> str:
        return f"seed {self.seed}" + (f", jitter {self.jitter:f}" if self.jitter else "")

    @property
    def option(self) -> str:
        """The seed as an argument of `ctsan train`."""
        return f"--set=training.seed={self.seed}"

    def features(self, folder: Path, out: Path) -> Path:
        """The features in `folder`; with jitter, a copy in `out` that has it, in single precision."""
        if not self.jitter:
            return folder
        shutil.copytree(folder, out)
        random = np.random.default_rng(self.seed)

        def jittered(maps: Maps) -> Maps:
            noise = self.jitter * random.standard_normal(maps.shape, dtype=np.float32)
            return maps.astype(np.float32) * (1 + noise)

        store = FeatureStore(out)
        for clip in store:
            found, header = store[clip], read_header(out, clip)
            assert header is not None
            mirrored = None if found.mirrored is None else jittered(found.mirrored)
            found = replace(found, maps=jittered(found.maps), mirrored=mirrored)
            write_clip(out, clip, found, recipe=header.recipe, source=header.source)
        return out


class Margin(NamedTuple):
    test: str
    start: str
    metric: str
    bound: str  # such as "> 0.65"
    value: float
    margin: float  # negative where the test fails

    @property
    def trained(self) -> str:
        """The test without its start."""
        path, _, parameters = self.test.removeprefix("tests/").removesuffix("]").partition("[")
        others = [each for each in parameters.split("-") if each not in ("", self.start)]
        return f"{path}[{'-'.join(others)}]" if others else path


class Margins:
    """Assertions about what was learnt, each kept with its distance from the threshold."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._found: list[tuple[str, str, float, float]] = []

    def above(self, metric: str, value: float, threshold: float) -> None:
        self._found.append((metric, f"> {threshold:g}", float(value), float(value - threshold)))
        assert value > threshold, f"{metric} is {value:g}, and must be above {threshold:g}"

    def below(self, metric: str, value: float, threshold: float) -> None:
        self._found.append((metric, f"< {threshold:g}", float(value), float(threshold - value)))
        assert value < threshold, f"{metric} is {value:g}, and must be below {threshold:g}"

    def write(self, file: Path, test: str) -> None:
        """Append what was found to a file that several processes may write to."""
        rows = [json.dumps(Margin(test, str(self._start), *found)) + "\n" for found in self._found]
        with file.open("a", encoding="utf-8") as lines:
            lines.write("".join(rows))


def scores_of(model: LoadedModel, items: Sequence[Item], encoding: ClipEncoding) -> tuple[Floats, Ints]:
    """What each answer to each item scores, and the places of the right ones; a row of `encoding` an item.

    Blanks have probabilities of words, and queries are asked of the clips of all items.
    """
    rows: list[Floats] = []
    right: list[int] = []
    for row, item in enumerate(items):
        own = encoding.of([row])
        if isinstance(item, BlankItem):
            assert isinstance(model, BlankFiller)
            found = fill_blanks([model], [AskedBlank(item.sentence, 0)], [own])
            rows.append(found.probabilities[0])
            right.append(found.words.index(item.answer))
            continue
        assert isinstance(model, SentenceScorer)
        if isinstance(item, ChoiceItem):
            rows.append(model.score_all(word_ids(model, item.choices), own)[:, 0])
            right.append(item.answer)
        else:
            rows.append(model.score_all(word_ids(model, [item.query]), encoding)[0])
            right.append(row)
    return np.stack(rows), np.array(right)


def lead(model: LoadedModel, items: Sequence[Item], store: FeatureStore) -> float:
    """By how much the right answer to the hardest item is above the best wrong one.

    A model that answers every item rightly has a lead above 0; how far above tells what rounding can change.
    """
    encoding = model.encode([store[item.clip].maps for item in items])
    scores, right = scores_of(model, items, encoding)
    is_right = np.arange(scores.shape[1]) == right[:, None]
    return float((scores[is_right] - np.where(is_right, -np.inf, scores).max(axis=1)).min())


def read_margins(file: Path) -> list[Margin]:
    """What was kept; of a test that was run again, what was found last."""
    if not file.exists():
        return []
    read = (Margin(*json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines())
    return list({(margin.test, margin.metric): margin for margin in read}.values())


def margin_table(margins: Iterable[Margin]) -> str:
    """A row for each metric of each test; the worst value is the one with the smallest margin."""
    groups: dict[tuple[str, str, str], list[Margin]] = {}
    for margin in margins:
        groups.setdefault((margin.trained, margin.metric, margin.bound), []).append(margin)
    rows = []
    for key, group in groups.items():
        worst = min(group, key=lambda each: each.margin)
        mean = sum(each.value for each in group) / len(group)
        rows.append((*key, len(group), worst.value, mean, worst.margin))
    headers = ("test", "metric", "bound", "trainings", "worst", "mean", "margin")
    return tabulate(rows, headers, floatfmt=".3f")
