"""A library that is filled on a Ray of two workers is the one that is filled without."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from clip_making import encode
from commands import ctsan_here
from ctsan.search.indexing import Outcome, Report, index_folders
from e2e.small_run import SMALL

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def models(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features", *SMALL)
    quick = ("--set=training.epochs=1", "--set=retrieval.sketch_dim=64", "--set=retrieval.joint_dim=16")
    for task in ("embed", "rank"):
        ctsan_here("train", task, *options, *quick, "--out", folder / task)
    return [folder / "embed", folder / "rank"]


@pytest.fixture(scope="module")
def folder(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Between four clips: a copy, a film of two scenes, a clip that breaks off and a text."""
    folder = tmp_path_factory.mktemp("videos").resolve()
    clips = sorted((shapes / "corpus").glob("clips/*.mp4"))[:4]
    for name, clip in zip(("a", "c", "e", "g"), clips, strict=True):
        shutil.copy(clip, folder / f"{name}.mp4")
    shutil.copy(clips[0], folder / "b copy.mp4")
    colours = np.random.default_rng(0).integers(0, 256, (2, 6, 8, 3), dtype=np.uint8)
    scenes = [np.kron(scene, np.ones((8, 8, 1), np.uint8)) for scene in colours]
    encode(folder / "d film.mp4", (scenes[n >= 80] for n in range(160)), rate=4)
    (folder / "f broken.mp4").write_bytes(clips[1].read_bytes()[:500])
    (folder / "h text.mp4").write_text("not a video", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def here(folder: Path, models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    place = tmp_path_factory.mktemp("here") / "main"
    return place, index_folders([folder], place, models=models)


@pytest.fixture(scope="module")
def _two_workers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
        yield
        ray.shutdown()


def content(library: Path) -> dict[str, object]:
    """Every file of a store, by its bytes; records as SQL, in the order in which they were written."""
    with closing(sqlite3.connect(library / "library.sqlite")) as records:
        found: dict[str, object] = {"library.sqlite": list(records.iterdump())}
    others = [each for each in library.rglob("*") if each.is_file() and "library.sqlite" not in each.name]
    return found | {str(file.relative_to(library)): file.read_bytes() for file in others}


@pytest.mark.usefixtures("_two_workers")
def test_the_store_is_that_of_a_local_run_byte_for_byte(
    here: tuple[Path, Report], folder: Path, models: list[Path], tmp_path: Path
) -> None:
    place, report = here
    told: list[Path] = []
    on_cluster = index_folders(
        [folder],
        tmp_path / "main",
        models=models,
        ray="local",
        on_file=lambda outcome: told.append(outcome.file),
    )
    assert content(tmp_path / "main") == content(place)
    assert told == sorted(folder.iterdir())
    assert (on_cluster.files, on_cluster.shots, on_cluster.new, on_cluster.known) == (6, 6, 5, 1)
    assert on_cluster.errors == report.errors
    assert set(report.errors) == {folder / "f broken.mp4", folder / "h text.mp4"}


@pytest.mark.usefixtures("_two_workers")
def test_stopped_it_goes_on_to_the_same_store(
    here: tuple[Path, Report], folder: Path, models: list[Path], tmp_path: Path
) -> None:
    def stop(outcome: Outcome) -> None:
        if outcome.file.name == "d film.mp4":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index_folders([folder], tmp_path / "main", models=models, ray="local", on_file=stop)
    report = index_folders([folder], tmp_path / "main", models=models, ray="local")
    assert (report.new, report.known) == (2, 4)
    assert content(tmp_path / "main") == content(here[0])
