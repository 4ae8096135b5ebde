"""From a corpus to an answer about a video file, by the real commands.

Worst of ten trainings by `make margins` (five seeds, each with and without jitter of 1e-4), and the bound:

- precision lost on new clips .625 (> .15)
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from commands import ctsan, ctsan_here
from ctsan.config import PROFILES, load_settings
from ctsan.inference.predictor import Predictor
from ctsan.runs.trained_run import load_runs
from e2e.small_run import SMALL
from margins import Margins, Start


@pytest.fixture(scope="module")
def run(shapes: Path) -> Path:
    out = shapes / "run"
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features", "--out", out, "--json")
    first = ctsan("train", "describe", *options, *SMALL)
    result = json.loads(first.stdout)
    assert result["steps"] == 2 * 3  # ten clips in batches of four
    assert {"CIDEr", "precision", "precision on train", "reliance"} <= result.keys()
    assert "There are 2 validation clips: CIDEr on so few says little" in first.stderr
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
        assert all(0 < concept["confidence"] <= 1 for concept in answer["concepts"])
        assert not {"<unk>", "<pad>", "<bos>", "<blank>"} & set(answer["caption"].split())
    assert bad == {
        "clip": str(clips[1]),
        "error": f"{clips[1]}: there is no such file. Check the path.",
    }
    concepts = json.loads(ctsan("concepts", clips[0], "--model", run, "--json").stdout)
    assert concepts == {"clip": str(clips[0]), "concepts": first["concepts"]}


def test_a_run_is_measured_on_a_split_of_a_corpus(shapes: Path, run: Path) -> None:
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features")
    found = json.loads(ctsan("evaluate", run, *options, "--json").stdout)
    assert found["task"] == "describe"
    assert {"CIDEr", "BLEU-4", "ROUGE-L", "different", "precision"} <= found["metrics"].keys()
    said = json.loads(ctsan("describe", shapes / "corpus/clips/0013.mp4", "--model", run, "--json").stdout)
    assert found["answers"]["clips/0013.mp4"] == said["caption"]
    table = ctsan("evaluate", run, *options, "--split", "val", "--beam", 1).stdout
    assert "\nCIDEr " in table
    missing = ctsan("evaluate", shapes / "corpus", *options, exit_code=2).stderr
    assert "no run is there" in missing


def test_python_gives_the_answers_of_the_command(shapes: Path, run: Path) -> None:
    clip = shapes / "corpus/clips/0002.mp4"
    shown = ctsan("describe", clip, "--model", run).stdout
    found = Predictor.load(run).describe(clip)
    assert shown.startswith(f"{clip}: {found.caption}\n")
    assert found.concepts[0].word in shown


def test_mean_pooling_with_vectors_of_others_speaks_alone_and_beside_another_run(
    shapes: Path, run: Path, tmp_path: Path
) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("moves 0.5 1 -1\nsquare 2 0 1\n", encoding="utf-8")
    out, clip = tmp_path / "pooled", shapes / "corpus/clips/0000.mp4"
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features", "--vectors", vectors)
    pooled = (
        "--set=model.decoder=pooled",
        "--set=detector.enabled=false",
        "--set=training.captions_per_clip=1",
    )
    asked = ("train", "describe", *options, "--out", out, *SMALL, *pooled)
    ctsan_here(*asked)
    vectors.unlink()
    ctsan_here(*asked, "--set=training.epochs=3")  # it goes on without the file
    alone, both = Predictor.load(out), Predictor.load(run, out)
    assert alone.describe(clip).caption
    assert len(both.concepts(clip)) == 4
    ctsan_here("pack", run, out, "--out", tmp_path / "pack")
    packed, said = (
        model.describe(clip).captions[0].score for model in (Predictor.load(tmp_path / "pack"), both)
    )
    assert packed == pytest.approx(said, abs=2e-2)


def test_what_cannot_be_trained_or_asked_says_so(shapes: Path, run: Path, tmp_path: Path) -> None:
    options: tuple[object, ...]
    options = ("train", "describe", "--corpus", shapes / "corpus", "--features", shapes / "features")
    wrong = ctsan(*options, "--out", tmp_path / "r", "--set", "detector.num_concept=3", exit_code=2).stderr
    assert "Unknown setting 'num_concept' in [detector]. Did you mean 'num_concepts'?" in wrong
    other = ctsan(*options, "--out", run, *SMALL, "--set", "model.hidden_dim=12", exit_code=2).stderr
    assert "hidden_dim" in other

    def corpus(first: dict[str, object] | None = None, **more: object) -> Path:
        rows = [
            {"clip": str(shapes / f"corpus/clips/000{n}.mp4"), "captions": ["a b"], "split": "train"} | more
            for n in range(3)
        ]
        rows[0] |= first or {}
        rows[2] |= {"split": "val"} if more else {}
        file = tmp_path / "all.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return file

    options = ("train", "describe", "--out", tmp_path / "r", "--corpus")
    assert "no clip of the split 'val' has captions" in ctsan(*options, corpus(), exit_code=2).stderr
    strangers = ctsan(*options, corpus(external=True), exit_code=2).stderr
    assert "every captioned clip of the split 'train' is external" in strangers
    joined_before = ctsan(*options, corpus({"repeat": 4}, repeat=1), exit_code=2).stderr
    assert "none is external. If an older ctsan joined it" in joined_before
    none = ctsan("describe", shapes / "corpus/clips/0000.mp4", "--model", tmp_path, exit_code=2).stderr
    assert "no run is there" in none


def test_the_end_of_a_training_shows_what_came_of_it(shapes: Path, run: Path) -> None:
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features", "--out", run)
    told = ctsan("train", "describe", *options, *SMALL)
    best = json.loads(ctsan("train", "describe", *options, *SMALL, "--json").stdout)
    known, new = best["precision on train"], best["precision"]
    assert f"{known:.0%} are right on training clips and {new:.0%} on validation clips" in told.stdout
    assert ("knows its training clips by heart" in told.stderr) == (known - new > 0.15)
    reliance = json.loads((run / "reliance.json").read_text(encoding="utf-8"))
    assert reliance == {"task": "describe", "split": "val", "step": best["best_step"], **best["reliance"]}
    sources = reliance["sources"]
    assert list(sources) == ["own", "another", "none"]
    assert sources["own"]["CIDEr"] == pytest.approx(best["CIDEr"], abs=1e-4)
    without = f"{sources['none']['CIDEr']:.3f} with none ({sources['none']['changed']:.0%} of the captions"
    assert f"Reliance on concept words: CIDEr {best['CIDEr']:.3f} with the clip's own, " in told.stdout
    assert without in told.stdout
    page = (run / "examples.html").read_text(encoding="utf-8")
    assert page.count("<article>") == 2
    assert page.count("<img ") == 8
    assert str(run / "examples.html") in told.stdout


@pytest.mark.parametrize("moment", ["before", "while writing"])
def test_killed_before_its_reliance_is_written_a_training_goes_on_to_the_same(
    shapes: Path, run: Path, tmp_path: Path, moment: str
) -> None:
    """The end of a training begins when weights and checkpoint are there."""
    killed = tmp_path / "killed"
    shutil.copytree(run, killed)
    kept = (killed / "reliance.json").read_bytes()
    (killed / "reliance.json").unlink()
    if moment == "while writing":
        (killed / ".reliance.json.tmp").write_bytes(kept[:40])
    before = {
        name: (killed / name).read_bytes() for name in ("weights.safetensors", "checkpoint.safetensors")
    }
    ctsan_here(
        *("train", "describe", "--corpus", shapes / "corpus", "--features", shapes / "features"),
        *("--out", killed, *SMALL),
    )
    assert (killed / "reliance.json").read_bytes() == kept
    assert not (killed / ".reliance.json.tmp").exists()
    for name, content in before.items():
        assert (killed / name).read_bytes() == content


def test_words_that_part_are_warned_of_at_once_and_at_the_end(
    shapes: Path, tmp_path: Path, start: Start, margins: Margins
) -> None:
    features = start.features(shapes / "features", tmp_path / "features")
    options = ("--corpus", shapes / "corpus", "--features", features, "--out", tmp_path / "r", start.option)
    by_heart = ("--set=training.epochs=40", "--set=training.evaluate_every=10", "--set=detector.dropout=0")
    fast = ("--set=optimiser.learning_rate=0.02", "--json")
    result = ctsan("train", "describe", *options, *SMALL, *by_heart, *fast)
    best = json.loads(result.stdout)
    margins.above("precision lost on new clips", best["precision on train"] - best["precision"], 0.15)
    warning = "The detector knows its training clips by heart:"
    progress, _, end = result.stderr.rpartition(warning)
    assert progress.count(warning) == 1
    assert "More captioned clips help." in end


def test_what_ended_before_its_first_checkpoint_does_not_bind(shapes: Path, tmp_path: Path) -> None:
    options = ("--corpus", shapes / "corpus", "--features", shapes / "features", "--out", tmp_path / "r")
    fast = ("--set=optimiser.learning_rate=1e6", "--set=optimiser.warmup_steps=0")
    failed = ctsan("train", "describe", *options, *SMALL, *fast, exit_code=2)
    assert "no longer a number" in failed.stderr
    # Other words are needed now: fewer candidates, shorter vectors.
    other = ("--set=detector.num_candidates=20", "--set=model.embedding_dim=12", "--set=training.epochs=1")
    ctsan("train", "describe", *options, *SMALL, *other)
    [run] = load_runs([tmp_path / "r"])
    assert run.words.embedding.shape[1] == 12
    refused = ctsan("train", "describe", *options, *SMALL, exit_code=2).stderr
    assert "detector.num_candidates is 20 there and 2000 now" in refused


@pytest.mark.parametrize(("task", "metric"), [("describe", "CIDEr"), ("choose", "accuracy")])
def test_one_validation_clip_is_too_few(shapes: Path, tmp_path: Path, task: str, metric: str) -> None:
    clips = [
        {"clip": str(shapes / f"corpus/clips/000{n}.mp4"), "captions": ["a b"], "split": split}
        for n, split in enumerate(("train", "train", "val"))
    ]
    (tmp_path / "few.jsonl").write_text("".join(json.dumps(clip) + "\n" for clip in clips), encoding="utf-8")
    options = ("train", task, "--corpus", tmp_path / "few.jsonl", "--out", tmp_path / "r")
    refused = ctsan(*options, exit_code=2).stderr
    assert f"{metric}, by which the best weights are chosen, says nothing with one" in refused
    assert not (tmp_path / "r").exists()


def test_every_setting_is_listed_with_its_values() -> None:
    listed = json.loads(ctsan("settings", "--json").stdout)
    assert listed["detector.attention_dim"] == {
        "help": "Channels between the two convolutions of a trace's attention.",
        "expected": "a whole number from 1 to 16,384",
        "laptop": 32,
        "paper": 500,
    }
    for profile in PROFILES:
        sections = load_settings(profile).to_json()
        flat = {
            f"{section}.{name}": value for section in sections for name, value in sections[section].items()
        }
        assert {name: setting[profile] for name, setting in listed.items()} == flat
    rows = {
        row.split()[0]: row.split()
        for row in ctsan("settings", "--profile", "paper").stdout.splitlines()
        if row
    }
    assert listed.keys() <= rows.keys()
    assert rows["training.hflip"][:4] == ["training.hflip", "true", "Flip", "clips"]
    assert "Did you mean 'paper'?" in ctsan("settings", "--profile", "papre", exit_code=2).stderr
    embed = json.loads(ctsan("settings", "--task", "embed", "--json").stdout)
    assert {name: embed["training.batch_size"][name] for name in PROFILES} == {"laptop": 256, "paper": 256}
    assert listed["training.batch_size"]["paper"] == 32
    assert "Did you mean 'embed'?" in ctsan("settings", "--task", "embedd", exit_code=2).stderr
