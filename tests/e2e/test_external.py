"""Clips that others captioned, given to the real commands beside one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import ctsan, ctsan_here
from ctsan.data.reading import read_corpora, read_corpus
from ctsan.errors import RunError, UsageError
from ctsan.io.paths import default_folder
from ctsan.text.words import Words
from ctsan.training.metrics import METRICS_FILE, read_metrics
from ctsan.video.store import FeatureStore
from e2e.small_run import SMALL

QUICK = ("--set=training.epochs=1", *(setting for setting in SMALL if "epochs" not in setting))


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus of 24 clips, which says "zebra" in every training caption, and its features."""
    folder = tmp_path_factory.mktemp("external")
    ctsan_here("corpus", "make", folder / "more", "--clips", 24, "--seed", 2)
    rows = [json.loads(line) for line in (folder / "more/clips.jsonl").read_text().splitlines()]
    for row in rows:
        row["captions"] = [f"a {row['split']} zebra {caption}" for caption in row["captions"]]
    (folder / "more/clips.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ctsan_here("features", folder / "more", "--out", folder / "features")
    return folder


def test_a_run_learns_from_external_clips_and_is_chosen_by_its_own(
    shapes: Path, more: Path, tmp_path: Path
) -> None:
    out, own = tmp_path / "run", ("--corpus", shapes / "corpus", "--features", shapes / "features")
    beside = ("--external", more / "more", "--features", more / "features")
    train = ("train", "describe", *own, "--out", out, *QUICK)
    first = ctsan(*train, *beside)
    clips = read_corpora([shapes / "corpus"], external=[more / "more"])
    external = [clip for clip in clips.split("train") if clip.external]
    own_clips = [clip for clip in clips.split("train") if not clip.external]
    [times] = {clip.repeat for clip in own_clips}
    assert times > 1
    assert len(external) == len(read_corpus(more / "more").split("train"))
    captions = sum(len(clip.captions) for clip in external)
    assert (
        f"External: {len(external)} clips, {captions} captions. Your training clips count {times}-fold: 5"
        in (first.stderr)
    )
    words = set(Words.load(out / "words").vocabulary.words)
    assert "zebra" in words
    assert not {"val", "test"} & words  # which all of the other external captions hold
    # A step is a batch of 4 clips; each own clip is learnt from `times` in an epoch.
    steps = -(-(len(external) + times * len(own_clips)) // 4)
    assert [row["step"] for row in read_metrics(out / METRICS_FILE) if "metrics" in row] == [steps]
    measured = json.loads((out / "reliance.json").read_text())
    assert measured["clips"] == len(read_corpus(shapes / "corpus").split("val"))

    # Stopped after an epoch, the same command goes on; without the external clips it is refused.
    longer = (*train, "--set=training.epochs=2")
    with pytest.raises(RunError, match=r"training examples, and there are .* \(--corpus and --external\)"):
        ctsan_here(*longer)
    went_on = json.loads(ctsan(*longer, *beside, "--json").stdout)
    assert went_on["steps"] == 2 * steps
    assert json.loads(ctsan(*longer, *beside, "--json").stdout) == went_on  # it is done


def test_features_are_given_or_made_for_external_clips_too(
    shapes: Path, more: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora = ("--corpus", shapes / "corpus", "--external", more / "more")
    train = ("train", "choose", *corpora, "--out", tmp_path / "run", *QUICK)
    told = (
        "--features is given 1 time, and there are 2 corpora. Give it once for each --corpus, then for each"
    )
    with pytest.raises(UsageError, match=f"{told} --external, in the same order"):
        ctsan_here(*train, "--features", shapes / "features")
    renamed = [json.loads(line) for line in (more / "more/clips.jsonl").read_text().splitlines()]
    for row in renamed:
        row["clip"] = str(more / "more" / row["clip"])  # its features have another id
    (tmp_path / "renamed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in renamed))
    given = ("--corpus", shapes / "corpus", "--external", tmp_path / "renamed.jsonl", *QUICK)
    folders = ("--features", shapes / "features", "--features", more / "features")
    with pytest.raises(UsageError, match="none of its clips that are learnt from has features in"):
        ctsan_here("train", "choose", *given, *folders, "--out", tmp_path / "run")
    assert not (tmp_path / "run/settings.json").exists()

    monkeypatch.setenv("CTSAN_CACHE", str(tmp_path / "cache"))
    ctsan_here(*train)
    [made] = default_folder("features", more / "more").iterdir()
    assert set(FeatureStore(made)) == {clip.id for clip in read_corpus(more / "more").split("train")}


def test_at_least_one_training_clip_must_be_ones_own(shapes: Path, more: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (shapes / "corpus/clips.jsonl").read_text().splitlines()]
    held_out = [row | {"clip": str(shapes / "corpus" / row["clip"]), "split": "val"} for row in rows]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in held_out))
    train = ("train", "describe", "--corpus", tmp_path / "own.jsonl", "--out", tmp_path / "run", *QUICK)
    with pytest.raises(UsageError, match="is external. At least one must be your own"):
        ctsan_here(*train, "--external", more / "more")
