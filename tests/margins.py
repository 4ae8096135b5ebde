"""How far a test that learns stays from its threshold, whatever the seed and the rounding of the processor.

`make margins` trains every such test from five seeds, each with the features as they are and with relative
Gaussian noise of 1e-4 on them, far more than processors differ by, and prints the lowest value of each metric.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tabulate import tabulate

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
            mirrored = None if found.mirrored is None else jittered(found.mirrored)
            found = replace(found, maps=jittered(found.maps), mirrored=mirrored)
            write_clip(out, clip, found, recipe=header.recipe, source=header.source)
        return out


class Margin(NamedTuple):
    test: str
    metric: str
    bound: str  # such as "> 0.65"
    value: float
    margin: float  # negative where the test fails


class Margins:
    """Assertions about what was learnt, each kept for the table with its distance from the threshold."""

    def __init__(self, node: pytest.Item, start: Start) -> None:
        self._node = node
        path, _, parameters = node.nodeid.removeprefix("tests/").partition("[")
        others = [each for each in parameters.removesuffix("]").split("-") if each and each != str(start)]
        self._test = f"{path}[{'-'.join(others)}]" if others else path

    def above(self, metric: str, value: float, threshold: float) -> None:
        self._keep(metric, f"> {threshold:g}", value, value - threshold)
        assert value > threshold, f"{metric} is {value:g}, and must be above {threshold:g}"

    def below(self, metric: str, value: float, threshold: float) -> None:
        self._keep(metric, f"< {threshold:g}", value, threshold - value)
        assert value < threshold, f"{metric} is {value:g}, and must be below {threshold:g}"

    def _keep(self, metric: str, bound: str, value: float, margin: float) -> None:
        row = Margin(self._test, metric, bound, float(value), float(margin))
        self._node.user_properties.append(("margin", tuple(row)))


def margin_table(margins: Iterable[Margin]) -> str:
    """A row for each metric of each test; the worst value is the one with the smallest margin."""
    groups: dict[tuple[str, str, str], list[Margin]] = {}
    for margin in margins:
        groups.setdefault((margin.test, margin.metric, margin.bound), []).append(margin)
    rows = []
    for key, group in groups.items():
        worst = min(group, key=lambda each: each.margin)
        mean = sum(each.value for each in group) / len(group)
        rows.append((*key, len(group), worst.value, mean, worst.margin))
    headers = ("test", "metric", "bound", "trainings", "worst", "mean", "margin")
    return tabulate(rows, headers, floatfmt=".3f", disable_numparse=[2])
