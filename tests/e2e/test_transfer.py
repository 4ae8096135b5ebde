"""`ctsan train … --from RUN`: a new run starts from the weights, words and sizes of another one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from commands import ctsan
from ctsan.data.reading import read_corpora, read_corpus
from ctsan.errors import RunError, UsageError
from ctsan.inference.predictor import Predictor
from ctsan.runs.run_folder import CHECKPOINT_FILE, Origin, create_run, open_run, weights_digest
from ctsan.runs.trained_run import WORDS_FOLDER
from ctsan.runs.weights import WEIGHTS_FILE
from ctsan.tasks.registry import task_settings
from ctsan.text.vocabulary import SPECIALS
from ctsan.text.words import Words, prepare_words
from ctsan.training.setup import TrainRequest, prepare, settings_for
from ctsan.video.store import Manifest, Recipe, read_manifest, write_manifest
from e2e.small_run import SMALL

# No sizes: they are taken over.
TRAINING = [
    *("--set=training.batch_size=4", "--set=training.hflip=false", "--set=training.epochs=2"),
    *("--set=training.checkpoint_every=5", "--set=training.evaluate_every=2"),
]


@pytest.fixture(scope="module")
def described(shapes: Path) -> Path:
    out = shapes / "described"
    ctsan("train", "describe", *places(shapes, shapes / "corpus"), "--out", out, *SMALL)
    return out


@pytest.fixture(scope="module")
def mine(shapes: Path) -> Path:
    """The same clips in words that nobody has said before, zebras among them."""
    folder = shapes / "mine"
    folder.mkdir()
    (folder / "clips").symlink_to(shapes / "corpus/clips")
    with (folder / "clips.jsonl").open("w", encoding="utf-8") as file:
        for clip in read_corpus(shapes / "corpus"):
            captions = [f"a zebra jumps and {caption}" for caption in clip.captions]
            file.write(json.dumps({"clip": clip.id, "captions": captions, "split": clip.split}) + "\n")
    return folder


@pytest.fixture(scope="module")
def filling(shapes: Path, described: Path, mine: Path) -> list[str]:
    return ["train", "fill", *places(shapes, mine), "--from", str(described), *TRAINING]


@pytest.fixture(scope="module")
def filled(shapes: Path, filling: list[str]) -> Path:
    out = shapes / "filled"
    assert "words come 2 new ones" in ctsan(*filling, "--out", out).stderr
    return out


def places(shapes: Path, corpus: Path) -> list[str]:
    return ["--corpus", str(corpus), "--features", str(shapes / "features")]


def order(
    shapes: Path, corpus: Path, source: Path, *overrides: str, features: Path | None = None
) -> TrainRequest:
    return TrainRequest(
        task="rank",
        corpora=(corpus,),
        profile="laptop",
        overrides=("training.hflip=false", *overrides),
        features=(features or shapes / "features",),
        source=source,
    )


def test_without_a_step_worth_the_name_it_says_what_the_other_says(shapes: Path, described: Path) -> None:
    still = ("--set=optimiser.learning_rate=1e-30", "--set=training.epochs=1", "--set=training.hflip=false")
    out = shapes / "still"
    options = (*places(shapes, shapes / "corpus"), "--out", out, "--from", described, *still)
    told = ctsan("train", "describe", *options).stderr
    assert f"Starting from {described}, a run of 'describe'" in told
    assert open_run(out).settings.model == open_run(described).settings.model
    new, old = (load_file(run / WEIGHTS_FILE) for run in (out, described))
    assert all(new[name].equal(old[name]) for name in new)
    clip = shapes / "corpus/clips/0003.mp4"
    assert Predictor.load(out).describe(clip) == Predictor.load(described).describe(clip)


def test_stopped_it_goes_on_to_the_same_weights_without_the_run_it_started_from(
    shapes: Path, described: Path, filling: list[str], filled: Path
) -> None:
    out, moved = shapes / "stopped", shapes / "moved"
    process = subprocess.Popen(
        [sys.executable, "-m", "ctsan", *filling, "--out", str(out)], stderr=subprocess.DEVNULL
    )
    while not (out / CHECKPOINT_FILE).exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    described.rename(moved)
    try:
        ctsan(*filling, "--out", out)
    finally:
        moved.rename(described)
    assert (out / WEIGHTS_FILE).read_bytes() == (filled / WEIGHTS_FILE).read_bytes()


def test_new_words_are_added_and_the_run_says_where_it_came_from(described: Path, filled: Path) -> None:
    before, after = (Words.load(run / WORDS_FOLDER) for run in (described, filled))
    num_words, num_candidates = len(before.vocabulary), len(before.concepts)
    assert after.vocabulary.words[:num_words] == before.vocabulary.words
    assert set(after.vocabulary.words[num_words:]) == {"zebra", "jumps"}
    assert after.concepts.words[:num_candidates] == before.concepts.words
    assert {"zebra", "jumps"} <= set(after.concepts.words[num_candidates:])
    assert open_run(filled).origin == Origin(
        run=str(described),
        task="describe",
        weights=weights_digest(described),
        parts=("clip_encoder", "word_input", "lstm"),
        kept_words=num_words - len(SPECIALS),
        new_words=2,
        kept_candidates=num_candidates,
        new_candidates=len(after.concepts) - num_candidates,
    )


def test_the_detector_alone_can_be_taken_over(
    shapes: Path, described: Path, mine: Path, tmp_path: Path
) -> None:
    """With the words that it knows in their places, and word vectors of the new captions."""
    still = ("--set=optimiser.learning_rate=1e-30", "--set=training.epochs=1", "--set=training.hflip=false")
    options = ("train", "fill", *places(shapes, mine), *still)
    refused = ctsan(*options, "--out", tmp_path / "none", "--transfer", "detector", exit_code=2)
    assert "Name one: --from RUN" in refused.stderr
    starting = (*options, "--from", described, "--transfer", "detector")
    kept = ctsan(
        *starting, "--out", tmp_path / "none", "--set=training.freeze_clip_encoder=true", exit_code=2
    )
    assert "Take over the rest too: --transfer shared" in kept.stderr
    out = tmp_path / "run"
    told = ctsan(*starting, "--out", out).stderr
    parts = ("detector", "reduce", "channel_means", "channel_scales", "probe")
    named = tuple(f"clip_encoder.{part}" for part in parts)
    assert f"with the weights of its {', '.join(named)}. To its" in told
    run = open_run(out)
    assert run.origin is not None
    assert run.origin.parts == named
    assert run.settings.training.transfer == "detector"
    before, after = (Words.load(each / WORDS_FOLDER) for each in (described, out))
    assert after.vocabulary.words[: len(before.vocabulary)] == before.vocabulary.words
    new = prepare_words(read_corpus(mine).captions("train"), embedding_dim=16, num_concepts=2000)
    both = [word for word in new.vocabulary.words if word in after.vocabulary]
    assert {"zebra", "circle"} & set(both)
    assert np.array_equal(
        after.embedding[after.vocabulary.encode(both)], new.embedding[new.vocabulary.encode(both)]
    )
    old, ours = (load_file(each / WEIGHTS_FILE) for each in (described, out))
    for name in ours:
        rows = ours[name][: len(old[name])] if name in old and old[name].dim() else ours[name]
        if name.startswith(named[:2]):
            assert rows.equal(old[name]), name
    video = "clip_encoder.encode_video.lstm.layers.0.from_input.weight"
    assert not ours[video].equal(old[video])


def test_a_run_without_a_detector_has_none_to_give(
    shapes: Path, runs: dict[str, Path], tmp_path: Path
) -> None:
    asked = order(shapes, shapes / "corpus", runs["plain"], "training.transfer=detector")
    with pytest.raises(UsageError, match="has learnt no concept word detector.*--transfer shared"):
        prepare(asked, read_corpora(asked.corpora), [tmp_path / "r"], settings_for(asked, [tmp_path / "r"]))


def test_mirroring_that_is_not_stored_is_a_warning_once(
    shapes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for overrides, times in ((("training.hflip=true",), 1), ((), 0)):
        asked = replace(order(shapes, shapes / "corpus", tmp_path), source=None, overrides=overrides)
        folders = [tmp_path / f"{times}{number}" for number in range(3)]  # of an ensemble
        prepare(asked, read_corpora(asked.corpora), folders, settings_for(asked, folders))
        assert caplog.text.count("hold no mirrored frames, so nothing is mirrored") == times
        caplog.clear()


def test_another_run_to_start_from_is_refused(
    shapes: Path, described: Path, mine: Path, filled: Path
) -> None:
    with pytest.raises(UsageError, match="started from other weights"):
        settings_for(order(shapes, mine, filled), [filled])
    with pytest.raises(UsageError, match=f"started from no other run, and {filled} is given"):
        settings_for(order(shapes, mine, filled), [described])


def test_what_does_not_fit_is_named(shapes: Path, described: Path, tmp_path: Path) -> None:
    corpus = shapes / "corpus"
    options = ("train", "rank", *places(shapes, corpus), "--out", tmp_path / "r", "--from", described)
    refused = ctsan(*options, "--set=model.hidden_dim=32", exit_code=2).stderr
    assert "do not fit: model.hidden_dim is 24 there and 32 here. Leave these settings out" in refused
    assert not (tmp_path / "r").exists()
    with pytest.raises(RunError, match="no run is there"):
        settings_for(order(shapes, corpus, tmp_path), [tmp_path / "r"])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"backbone": "resnet152"}, "trained on features of tiny-vit-5m, .* on those of resnet152"),
        ({"details": {"weights": "others"}}, "these features of tiny-vit-5m were made otherwise"),
    ],
)
def test_features_of_another_kind_are_refused(
    shapes: Path, described: Path, tmp_path: Path, change: dict[str, object], what: str
) -> None:
    manifest = read_manifest(shapes / "features")
    assert manifest is not None
    recipe = manifest.recipe
    kept = {name: getattr(recipe, name) for name in ("backbone", "grid", "channels", "mirrored", "details")}
    write_manifest(tmp_path, Manifest(Recipe(**(kept | change)), manifest.clips, {}))
    asked = order(shapes, shapes / "corpus", described, features=tmp_path)
    runs = [tmp_path / "r"]
    with pytest.raises(UsageError, match=what):
        prepare(asked, read_corpora(asked.corpora), runs, settings_for(asked, runs))


def test_how_clips_are_seen_can_be_kept(shapes: Path, described: Path, mine: Path, tmp_path: Path) -> None:
    """With the words that they are seen in: zebras could not be learnt."""
    kept = "--set=training.freeze_clip_encoder=true"
    options = ("train", "choose", *places(shapes, mine), "--out", tmp_path, *TRAINING, kept)
    refused = ctsan(*options, exit_code=2)
    assert "Name one: --from RUN" in refused.stderr
    vain = ctsan(*options, "--from", described, "--vectors", tmp_path / "vectors.txt", exit_code=2)
    assert "--vectors would change nothing" in vain.stderr
    assert "words come 0 new ones" in ctsan(*options, "--from", described).stderr
    old, new = (load_file(folder / WEIGHTS_FILE) for folder in (described, tmp_path))
    seeing = {name for name in old if name.startswith("clip_encoder.")}
    assert all(old[name].equal(new[name]) for name in seeing)
    assert not old["decode.lstm.layers.0.from_hidden.weight"].equal(new["lstm.layers.0.from_hidden.weight"])


def test_an_embedding_that_starts_from_another_takes_over_its_settings_before_the_defaults_of_the_task(
    tmp_path: Path,
) -> None:
    trained = task_settings("embed", "laptop", ("retrieval.phrases=5", "training.steps=9"))
    create_run(tmp_path / "trained", task="embed", profile="laptop", settings=trained)
    new = TrainRequest(
        task="embed",
        corpora=(tmp_path,),
        profile="laptop",
        overrides=("retrieval.temperature=0.2",),
        features=(),
        source=tmp_path / "trained",
    )
    [settings] = settings_for(new, [tmp_path / "new"])
    assert (settings.retrieval.phrases, settings.retrieval.temperature) == (5, 0.2)
    assert (settings.training.steps, settings.training.batch_size) == (1500, 256)  # how to train is said anew
