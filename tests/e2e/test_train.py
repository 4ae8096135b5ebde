"""From a corpus to an answer about a video file, by the real commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import ctsan
from ctsan.predictor import Predictor

SMALL = [
    f"--set={setting}"
    for setting in (
        "model.hidden_dim=24",
        "model.embedding_dim=16",
        "detector.attention_dim=8",
        "detector.num_concepts=4",
        "training.batch_size=4",
        "training.epochs=2",
        "training.mirror=false",
        "decoding.max_words=12",
    )
]


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shapes")
    ctsan("corpus", "make", folder / "corpus", "--clips", 14, "--seed", 1)
    ctsan("features", folder / "corpus", "--out", folder / "features")
    return folder


@pytest.fixture(scope="module")
def run(shapes: Path) -> Path:
    out = shapes / "run"
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features", "--out", out, "--json")
    result = json.loads(ctsan("train", "describe", *options, *SMALL).stdout)
    assert result["steps"] == 2 * 3  # ten clips in batches of four
    assert json.loads(ctsan("train", "describe", *options, *SMALL).stdout) == result  # it is done
    return out


def test_a_run_answers_about_video_files(shapes: Path, run: Path) -> None:
    clips = [shapes / "corpus/clips/0000.mp4", shapes / "gone.mp4", shapes / "corpus/clips/0001.mp4"]
    lines = ctsan(
        "describe", *clips, "--model", run, "--n-best", 2, "--json", exit_code=1
    ).stdout.splitlines()
    first, bad, last = (json.loads(line) for line in lines)
    for answer, clip in ((first, clips[0]), (last, clips[2])):
        assert answer["clip"] == str(clip)
        assert answer["caption"]
        assert len(answer["captions"]) == 2
        assert len(answer["concepts"]) == 4
        assert answer["captions"][0]["score"] >= answer["captions"][1]["score"]
        assert all(0 < concept["confidence"] < 1 for concept in answer["concepts"])
        assert not {"<unk>", "<pad>", "<bos>", "<blank>"} & set(answer["caption"].split())
    assert bad == {
        "clip": str(clips[1]),
        "error": f"{clips[1]}: there is no such file. Check the path.",
    }
    concepts = json.loads(ctsan("concepts", clips[0], "--model", run, "--json").stdout)
    assert concepts == {"clip": str(clips[0]), "concepts": first["concepts"]}


def test_python_gives_the_answers_of_the_command(shapes: Path, run: Path) -> None:
    clip = shapes / "corpus/clips/0002.mp4"
    shown = ctsan("describe", clip, "--model", run).stdout
    found = Predictor.load(run).describe(clip)
    assert shown.startswith(f"{clip}: {found.caption}\n")
    assert found.concepts[0].word in shown


def test_what_cannot_be_trained_or_asked_says_so(shapes: Path, run: Path, tmp_path: Path) -> None:
    options = ("train", "describe", "--corpus", shapes / "corpus", "--features", shapes / "features")
    wrong = ctsan(*options, "--out", tmp_path / "r", "--set", "detector.num_concept=3", exit_code=2).stderr
    assert "Unknown setting 'num_concept' in [detector]. Did you mean 'num_concepts'?" in wrong
    other = ctsan(*options, "--out", run, *SMALL, "--set", "model.hidden_dim=12", exit_code=2).stderr
    assert "hidden_dim" in other
    (tmp_path / "all.jsonl").write_text(
        "".join(
            json.dumps(
                {"clip": str(shapes / f"corpus/clips/000{n}.mp4"), "captions": ["a b"], "split": "train"}
            )
            + "\n"
            for n in range(3)
        )
    )
    options = ("train", "describe", "--corpus", tmp_path / "all.jsonl", "--out", tmp_path / "r")
    assert "no clip of the split 'val' has captions" in ctsan(*options, exit_code=2).stderr
    none = ctsan("describe", shapes / "corpus/clips/0000.mp4", "--model", tmp_path, exit_code=2).stderr
    assert "no run is there" in none
