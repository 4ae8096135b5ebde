"""A run whose concept words are ranked with a prior and chosen out of fold, from training to export."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import ctsan_here
from ctsan.inference.ensemble import detected_concepts
from ctsan.inference.loading import load_model
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.runs.trained_run import load_runs
from ctsan.video.store import FeatureStore
from e2e.small_run import SMALL

PRIOR = [
    f"--set={setting}"
    for setting in ("detector.prior_weight=1", "training.out_of_fold=true", "detector.probe=mlp")
]


@pytest.fixture(scope="module")
def ranked(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("prior") / "run"
    corpus = ("--corpus", shapes / "corpus", "--features", shapes / "features")
    ctsan_here("train", "describe", *corpus, "--out", run, *SMALL, *PRIOR)
    return run


def test_the_words_that_are_shown_are_those_that_the_decoder_attends_to(ranked: Path, shapes: Path) -> None:
    [run] = load_runs([ranked])
    model = load_model(run)
    store = FeatureStore(shapes / "features")
    encoding = model.encode([store[clip].maps for clip in list(store.manifest.clips)[:3]])
    candidates = model.concepts.candidates
    for row, words in enumerate(encoding.concept_words.tolist()):
        shown = detected_concepts([model], [encoding.of([row])])
        assert [concept.word for concept in shown] == [candidates[word].word for word in words]
        assert len({candidates[word].lemma for word in words}) == len(words)
    encoder = run.model.clip_encoder
    assert isinstance(encoder, ClipEncoder)
    assert encoder.frequencies.max() > 0.1  # the training clips', stored with the run


@pytest.mark.parametrize("prior_weight", [1.0, 0.0])
def test_another_run_can_start_from_it_with_either_ranking(
    ranked: Path, shapes: Path, tmp_path: Path, prior_weight: float
) -> None:
    corpus = ("--corpus", shapes / "corpus", "--features", shapes / "features")
    options = (
        "--from",
        ranked,
        "--set",
        f"detector.prior_weight={prior_weight}",
        "--set",
        "training.steps=1",
    )
    ctsan_here("train", "describe", *corpus, "--out", tmp_path / "run", *options)
    encoder = load_runs([tmp_path / "run"])[0].model.clip_encoder
    assert isinstance(encoder, ClipEncoder)
    assert encoder.prior_weight == prior_weight
