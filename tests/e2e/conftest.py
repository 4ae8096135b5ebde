from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import ctsan, ctsan_here
from e2e.small_run import SMALL


@pytest.fixture(scope="session", autouse=True)
def _no_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """METEOR takes ten seconds to start: only the test that asks for Java has it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(tmp_path_factory.mktemp("no_java")))
        yield


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small corpus and its features: ten clips to learn from, two for validation."""
    folder = tmp_path_factory.mktemp("shapes")
    ctsan("corpus", "make", folder / "corpus", "--clips", 14, "--seed", 1)
    ctsan("features", folder / "corpus", "--out", folder / "features")
    return folder


@pytest.fixture(scope="session")
def runs(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small runs of all tasks by their names, each with another seed.

    The plain one has no detector, and that of the first has a probe.
    """
    folder = tmp_path_factory.mktemp("runs")
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features", *SMALL)
    quick = ("--set=training.epochs=1", "--set=retrieval.sketch_dim=64", "--set=retrieval.joint_dim=16")
    names = ("describe", "fill", "fill2", "choose", "choose2", "rank", "rank2", "plain")
    for seed, name in enumerate(names):
        task = {"plain": "rank"}.get(name, name.rstrip("2"))
        own = (
            f"--set=training.seed={seed}",
            f"--set=detector.enabled={name != 'plain'}".lower(),
            f"--set=detector.probe={'mlp' if name == 'describe' else 'none'}",
        )
        ctsan_here("train", task, *options, *quick, *own, "--out", folder / name)
    return {name: folder / name for name in names}
