"""A user's own network, from its file to answers about video files, in commands, library and page."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from commands import ctsan, ctsan_here
from ctsan.data.reading import read_corpus
from ctsan.errors import UsageError
from ctsan.inference.predictor import Predictor
from ctsan.runs.trained_run import read_recipe
from ctsan.video.store import FeatureStore
from e2e.small_run import SMALL
from video.own_networks import SIZE, Grid, export, seeded

DOCS = Path(__file__).parents[2] / "docs" / "features.md"
QUICK = (*SMALL, "--set=training.epochs=1")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, shapes: Path) -> Path:
    """A folder as the docs have it: net.onnx, my-clips/ and clip.mp4; its cache is its own."""
    folder = tmp_path_factory.mktemp("own")
    export(seeded(Grid), folder / "net.onnx")
    (folder / "my-clips").symlink_to(shapes / "corpus")
    shutil.copy(min((shapes / "corpus" / "clips").glob("*.mp4")), folder / "clip.mp4")
    return folder


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("CTSAN_CACHE", str(place / "cache"))


@pytest.fixture(scope="module")
def outputs(place: Path) -> list[str]:
    """What the three commands of the docs print, with settings that train in seconds."""
    section = DOCS.read_text(encoding="utf-8").partition("### A network of your own")[2]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found
    commands = [shlex.split(line) for line in found[1].splitlines()]
    assert [words[:2] for words in commands] == [
        ["ctsan", "backbone"],
        ["ctsan", "train"],
        ["ctsan", "describe"],
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("CTSAN_CACHE", str(place / "cache"))
        return [ctsan(*words[1:], *(QUICK if words[1] == "train" else ())).stdout for words in commands]


def test_three_commands_of_the_docs_lead_from_a_file_to_a_described_clip(
    place: Path, outputs: list[str]
) -> None:
    checked, _, described = outputs
    assert re.search(r"^maps +4×4×6, 2×2 max-pooled$", checked, re.MULTILINE)
    assert re.search(r"^onnx:net.onnx +\d+\.\d$", checked, re.MULTILINE)
    assert re.search(r"^efficientnet-lite0 +\d+\.\d$", checked, re.MULTILINE)
    assert described.startswith("clip.mp4")
    recipe = read_recipe(place / "runs" / "net")
    assert (recipe.backbone, recipe.grid, recipe.channels) == ("onnx:net.onnx", (4, 4), 6)
    assert recipe.details["image_size"] == SIZE


@pytest.mark.usefixtures("outputs")
def test_evaluate_makes_the_features_of_the_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ctsan_here("evaluate", "runs/net", "--corpus", "my-clips", "--split", "val")
    assert "Measured on 2 clips of the split 'val'" in capsys.readouterr().out
    made = [folder.name for folder in (place / "cache" / "features").glob("*/*")]
    assert len(made) == 1  # none of the default network
    assert made[0].startswith("onnx-net.onnx-")


@pytest.mark.usefixtures("outputs")
def test_a_training_that_starts_from_the_run_takes_its_network(place: Path) -> None:
    ctsan_here("train", "fill", "--corpus=my-clips", "--from=runs/net", *QUICK, "--out=runs/fill")
    assert read_recipe(place / "runs" / "fill") == read_recipe(place / "runs" / "net")


@pytest.mark.usefixtures("outputs")
def test_a_trace_has_the_cells_of_the_network(place: Path) -> None:
    tracing = Predictor.load(place / "runs" / "net").trace("clip.mp4")
    np.testing.assert_allclose(tracing.rows, np.array([0, 2, 4, 6, 7]) / 7)


@pytest.mark.usefixtures("outputs")
def test_a_library_is_made_and_searched_with_the_network(capsys: pytest.CaptureFixture[str]) -> None:
    ctsan_here("train", "embed", "--corpus=my-clips", "--backbone=onnx:net.onnx", *QUICK, "--out=runs/embed")
    ctsan_here("index", "my-clips/clips", "--store=store", "--model=runs/embed")
    assert "14 files" in capsys.readouterr().out
    ctsan_here("search", "a red circle", "--store=store")
    assert ".mp4" in capsys.readouterr().out


@pytest.mark.usefixtures("outputs")
def test_the_run_is_exported_with_the_network(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ctsan_here("export", "runs/net", "--onnx", "onnx")
    assert "backbone.onnx" in capsys.readouterr().out
    assert (place / "onnx" / "backbone.onnx").exists()


@pytest.mark.usefixtures("outputs")
def test_a_network_that_is_gone_is_named_and_one_that_is_shown_is_found(place: Path) -> None:
    moved = (place / "net.onnx").rename(place / "away.onnx")
    try:
        with pytest.raises(UsageError, match="features of onnx:net.onnx.*ctsan backbone check FILE"):
            ctsan_here("describe", "clip.mp4", "--model=runs/net")
        ctsan_here("describe", "clip.mp4", "--model=runs/net", "--weights", moved)
        ctsan_here("describe", "clip.mp4", "--model=runs/net")
    finally:
        moved.rename(place / "net.onnx")
        ctsan_here("describe", "clip.mp4", "--model=runs/net", "--weights=net.onnx")


@pytest.mark.usefixtures("outputs")
def test_check_probes_a_corpus_beside_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    ctsan_here("backbone", "check", "onnx:net.onnx", "--corpus", "my-clips", "--json")
    found = capsys.readouterr().out
    for name in ("onnx:net.onnx", "efficientnet-lite0", "(always the commonest words)"):
        assert re.search(rf'"{re.escape(name)}": 0\.\d', found)


def test_features_and_a_network_to_make_them_with_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="Leave out one"):
        ctsan_here("train", "fill", "--corpus=c", "--features=f", "--backbone=resnet50", "--out=r")


def test_that_imported_features_are_not_for_files_is_said_before_any_work(
    shapes: Path, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays, features = place / "arrays", place / "imported"
    store = FeatureStore(shapes / "features")
    for clip in read_corpus(shapes / "corpus"):
        array = arrays / f"{clip.id}.npy"
        array.parent.mkdir(parents=True, exist_ok=True)
        np.save(array, store[clip.id].maps[..., :8])
    ctsan_here("features", "my-clips", "--import", arrays, "--backbone=slowfast", "--out", features)
    assert "cannot be asked about video files" in capsys.readouterr().err
    ctsan_here("train", "describe", "--corpus=my-clips", "--features", features, *QUICK, "--out=runs/i")
    said = capsys.readouterr().err
    assert said.index("cannot be asked about video files") < said.index("Preparing the words")
    refuse = lambda *_, **__: pytest.fail("work was done")  # noqa: E731
    monkeypatch.setattr("ctsan.training.features.make_features", refuse)
    for asked in (
        ("describe", "gone.mp4", "--model=runs/i"),
        ("train", "fill", "--corpus=my-clips", "--from=runs/i", *QUICK, "--out=runs/j"),
    ):
        with pytest.raises(UsageError, match="trained on imported features.*slowfast"):
            ctsan_here(*asked)
    ctsan_here("evaluate", "runs/i", "--corpus=my-clips", "--features", features, "--split=val")
