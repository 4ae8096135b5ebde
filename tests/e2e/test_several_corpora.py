"""Two corpora with clips of the same ids, given to the real commands at once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from commands import ctsan, ctsan_here
from ctsan.data.corpus import parts_of
from ctsan.data.reading import read_corpora, read_corpus
from ctsan.errors import StoreError, UsageError
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore
from ctsan.video.store_union import open_stores
from e2e.small_run import SMALL


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CTSAN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def corpora(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The shared corpus of fourteen clips, and one of ten others that have the same names."""
    more = tmp_path_factory.mktemp("more") / "more"
    ctsan_here("corpus", "make", more, "--clips", 10, "--seed", 2)
    return [shapes / "corpus", more]


@pytest.fixture(scope="module")
def features(shapes: Path, corpora: list[Path]) -> list[Path]:
    """The folder of each: that of the first is there already."""
    folders = [shapes / "features", corpora[1].with_name("features")]
    made = ctsan("features", *corpora, "--out", folders[0], "--out", folders[1], "--json").stdout
    reports = [json.loads(line) for line in made.splitlines()]
    assert [(report["features"], report["clips"], report["new"]) for report in reports] == [
        (str(folders[0]), 14, 0),
        (str(folders[1]), 10, 10),
    ]
    return folders


def given(option: str, paths: list[Path]) -> list[object]:
    return [part for path in paths for part in (option, path)]


def test_each_clip_has_the_features_of_its_own_corpus(corpora: list[Path], features: list[Path]) -> None:
    clips = read_corpora(corpora)
    store = open_stores(features, [part.ids for part in parts_of(clips)])
    assert len(store) == 24
    assert {clip.id for clip in clips} == set(store)
    alone = [FeatureStore(folder)["clips/0003.mp4"].maps for folder in features]
    for name, maps in zip(("corpus", "more"), alone, strict=True):
        np.testing.assert_array_equal(store[f"{name}/clips/0003.mp4"].maps, maps)
        assert store.manifest.clips[f"{name}/clips/0003.mp4"].frames == len(maps)
    assert "clips/0003.mp4" not in store
    with pytest.raises(StoreError, match="no features of clip 'clips/0003.mp4'"):
        store["clips/0003.mp4"]


def test_a_run_learns_from_both_and_is_measured_on_both(
    corpora: list[Path], features: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    told = [*given("--corpus", corpora), *given("--features", features)]
    train = ("train", "describe", *told, "--out", out, *SMALL, "--json")
    result = json.loads(ctsan(*train).stdout)
    learnt = sum(len(read_corpus(corpus).split("train")) for corpus in corpora)
    assert result["steps"] == 2 * -(-learnt // 4)
    assert json.loads(ctsan(*train).stdout) == result  # it is done
    both = read_corpora(corpora)
    expected = Words.load(out / "words")
    ctsan_here("words", *corpora, "--out", tmp_path / "words", "--dim", 16)
    assert Words.load(tmp_path / "words").vocabulary.words == expected.vocabulary.words
    found = json.loads(ctsan("evaluate", out, *told, "--split", "val", "--json").stdout)
    assert set(found["answers"]) == {clip.id for clip in both.split("val")}
    assert {"corpus", "more"} <= {answer.split("/")[0] for answer in found["answers"]}
    # A caption is that of the same file by itself.
    name, alone = "more/clips/0009.mp4", ("--corpus", corpora[1], "--features", features[1], "--split", "all")
    said = json.loads(ctsan("evaluate", out, *told, "--split", "all", "--json").stdout)["answers"][name]
    assert json.loads(ctsan("evaluate", out, *alone, "--json").stdout)["answers"]["clips/0009.mp4"] == said


def test_features_in_the_cache_are_those_of_each_corpus(
    corpora: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ctsan_here("features", corpora[1], "--json")
    assert json.loads(capsys.readouterr().out)["new"] == 10
    quick = ("--set=training.epochs=1", *(one for one in SMALL if "epochs" not in one))
    ctsan_here("train", "choose", *given("--corpus", corpora), "--out", tmp_path / "run", *quick)
    capsys.readouterr()
    ctsan_here("features", *corpora, "--json")
    made = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["clips"], one["new"]) for one in made] == [(14, 0), (10, 0)]
    ctsan_here("evaluate", tmp_path / "run", *given("--corpus", corpora), "--split", "all", "--json")
    asked = json.loads(capsys.readouterr().out)["answers"]
    assert {"corpus/clips/0003.mp4", "more/clips/0003.mp4", "clips/0011.mp4"} <= set(asked)


def test_folders_that_do_not_go_with_the_corpora_are_refused(
    corpora: list[Path], features: list[Path], tmp_path: Path
) -> None:
    train = ("train", "describe", *given("--corpus", corpora), "--out", tmp_path / "run", *SMALL)
    with pytest.raises(UsageError, match="--features is given 1 time, and there are 2 corpora"):
        ctsan_here(*train, "--features", features[0])
    with pytest.raises(UsageError, match="--out is given 1 time, and there are 2 corpora"):
        ctsan_here("features", *corpora, "--out", tmp_path / "f")
    with pytest.raises(UsageError, match="one --out for two corpora"):
        ctsan_here("features", *corpora, "--out", tmp_path / "f", "--out", tmp_path / "f")
    with pytest.raises(
        StoreError, match=r"one folder for two corpora that both have a clip 'clips/0000.mp4'"
    ):
        ctsan_here(*train, *given("--features", [features[0], features[0]]))
    other = tmp_path / "other"
    shutil.copytree(features[1], other)
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["recipe"]["details"]["max_frames"] = 7
    (other / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError) as caught:
        ctsan_here(*train, *given("--features", [features[0], other]))
    assert str(other) in str(caught.value)
    assert str(features[0]) in str(caught.value)
    assert not (tmp_path / "run/settings.json").exists()


def test_clips_with_features_need_no_files(tmp_path: Path) -> None:
    corpus, arrays, store = tmp_path / "corpus", tmp_path / "arrays", tmp_path / "features"
    corpus.mkdir()
    arrays.mkdir()
    rows = [
        {"clip": f"{name}_1_9", "captions": ["a man sings"], "split": split, "source": name}
        for name, split in (("a", "train"), ("b", "val"), ("c", "test"))
    ]
    (corpus / "clips.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    np.save(arrays / "all.npy", np.zeros((3, 4, 8), np.float32))
    refused = ctsan("features", corpus, "--import", arrays, "--out", store, exit_code=2).stderr
    assert f"expected {arrays}/a_1_9.npy for clip 'a_1_9', found 1 .npy file, such as 'all.npy'" in refused
    for row in rows:
        np.save(arrays / f"{row['clip']}.npy", np.zeros((4, 8), np.float32))
    ctsan("features", corpus, "--import", arrays, "--out", store)
    bare = ctsan("corpus", "check", corpus, exit_code=2).stderr
    assert "clips.jsonl:1: the file of clip 'a_1_9' is missing" in bare
    assert "name its features with --features" in bare
    checked = ctsan("corpus", "check", corpus, "--features", store)
    rows_shown = [line.split() for line in checked.stdout.splitlines()]
    assert ["features,", "no", "file", "3"] in rows_shown
    assert ["missing", "0"] in rows_shown
    with (corpus / "clips.jsonl").open("a") as file:
        file.write(json.dumps({**rows[0], "clip": "d"}) + "\n")
    summary = json.loads(ctsan("corpus", "check", corpus, "--features", store, "--json", exit_code=2).stdout)
    assert (summary["clips"], summary["features_only"], summary["missing"]) == (4, 3, 1)


def test_a_check_of_both_counts_both(corpora: list[Path]) -> None:
    summary = json.loads(ctsan("corpus", "check", *corpora, "--no-video", "--json").stdout)
    alone = [json.loads(ctsan("corpus", "check", path, "--no-video", "--json").stdout) for path in corpora]
    assert summary["clips"] == 24
    assert summary["captions"] == sum(one["captions"] for one in alone)
    assert summary["splits"]["val"]["clips"] == sum(one["splits"]["val"]["clips"] for one in alone)
    assert summary["path"] == ", ".join(map(str, corpora))
    assert summary["name"] == "corpus + more"
