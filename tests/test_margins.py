"""What `make margins` does: noise on features, and a table of the worst value of each metric."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ctsan.video.clip_index import ClipRecord
from ctsan.video.store import (
    FeatureStore,
    Manifest,
    Recipe,
    StoredFeatures,
    write_clip,
    write_manifest,
)
from margins import Margins, Start, margin_table, read_margins


def test_jitter_is_relative_noise_on_a_copy_of_the_features(tmp_path: Path) -> None:
    folder, out = tmp_path / "features", tmp_path / "jittered"
    maps = np.random.default_rng(0).normal(size=(4, 7, 7, 50)).astype(np.float16)
    maps[0] = 0
    write_clip(folder, "a", StoredFeatures(maps, np.arange(4.0), maps[::-1].copy()), recipe="r", source="s")
    write_manifest(folder, Manifest(Recipe("mine", (7, 7), 50, True, {}), {"a": ClipRecord(4, 0, 0)}, {}))
    assert Start(seed=3).features(folder, out) == folder
    found = FeatureStore(Start(seed=3, jitter=1e-4).features(folder, out))["a"]
    assert np.array_equal(FeatureStore(folder)["a"].maps, maps)
    assert not found.maps[0].any()
    assert found.times is not None
    assert found.times.tolist() == [0, 1, 2, 3]
    for noisy, plain in ((found.maps[1:], maps[1:]), (found.mirrored[:3], maps[:0:-1])):  # type: ignore[index]
        noise = noisy / plain.astype(np.float32) - 1
        assert noise.std() == pytest.approx(1e-4, rel=0.05)
        assert abs(noise.mean()) < 1e-5


def test_the_table_has_the_worst_value_of_every_metric_failures_included(tmp_path: Path) -> None:
    file = tmp_path / "margins.jsonl"
    for seed, value in enumerate((0.9, 0.4, 0.8)):
        margins = Margins(Start(seed))
        if value > 0.5:
            margins.above("accuracy", value, 0.5)
        else:
            with pytest.raises(AssertionError, match="accuracy is 0.4, and must be above 0.5"):
                margins.above("accuracy", value, 0.5)
        margins.below("loss", value / 10, 0.2)
        margins.write(file, f"tests/test_x.py::test_y[seed {seed}-fill]")
    [accuracy, loss] = [line.split() for line in margin_table(read_margins(file)).splitlines()[2:]]
    assert accuracy == ["test_x.py::test_y[fill]", "accuracy", ">", "0.5", "3", "0.400", "0.700", "-0.100"]
    assert loss == ["test_x.py::test_y[fill]", "loss", "<", "0.2", "3", "0.090", "0.070", "0.110"]
