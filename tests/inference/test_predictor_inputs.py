"""Clips given as frames, and what the predictor hands out as arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ctsan import Predictor
from ctsan.errors import UsageError
from ctsan.video.frames import sample_frames
from ctsan.video.given_frames import frames_of

CLIPS = Path(__file__).parents[2] / "examples/clips"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor.load()


@pytest.fixture(scope="module")
def frames() -> np.ndarray:
    """As many frames of the coffee as the model looks at, in the size that its backbone takes."""
    return sample_frames(CLIPS / "coffee.mp4", size=160).pixels


def test_frames_are_described_as_the_file_that_they_are_of(predictor: Predictor, frames: np.ndarray) -> None:
    of_file = predictor.describe(CLIPS / "coffee.mp4")
    of_array = predictor.describe(frames)
    of_pictures = predictor.describe([Image.fromarray(frame) for frame in frames])
    assert of_array.caption == of_pictures.caption == of_file.caption
    for ours, theirs in zip(of_array.concepts, of_file.concepts, strict=True):
        assert ours.word == theirs.word
        assert ours.confidence == pytest.approx(theirs.confidence, abs=1e-3)
    assert of_array.clip == f"{len(frames)} frames"


@pytest.mark.parametrize(
    ("clip", "fault"),
    [
        ({"a": 1}, "this is a dict"),
        (np.zeros((8, 8, 3), np.uint8), r"this is a ndarray of shape \(8, 8, 3\)"),
        (np.zeros((2, 8, 8, 3), np.float32), r"this one holds a frame of shape \(8, 8, 3\) and type float32"),
        ([], "this one has no frames"),
        ([3], "this one holds a int"),
    ],
)
def test_other_things_are_refused_with_what_is_accepted(clip: object, fault: str) -> None:
    with pytest.raises(UsageError, match=rf"A clip is the path of .*; {fault}"):
        frames_of(clip, size=16)  # type: ignore[arg-type]


def test_embeddings_are_unit_vectors_whose_products_rank_as_rank_does(predictor: Predictor) -> None:
    query = "a cup of coffee on a table"
    clips = sorted(CLIPS.glob("*.mp4"))
    text = predictor.embed_text(query)
    vectors = np.stack([predictor.embed_clip(clip) for clip in clips])
    assert text.dtype == vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    by_product = [str(clips[place]) for place in (-(vectors @ text)).argsort()]
    assert by_product == [ranked.clip for ranked in predictor.rank(query, clips).clips]
    assert Path(by_product[0]).stem == "coffee"


def test_all_concepts_are_every_candidate_with_those_that_are_read_first(predictor: Predictor) -> None:
    clip = CLIPS / "cat.mp4"
    ten, every = predictor.concepts(clip), predictor.concepts(clip, all=True)
    assert len(every) == 2000
    assert len({concept.word for concept in every}) == 2000
    places = {concept.word: place for place, concept in enumerate(every)}
    ranks = [places[concept.word] for concept in ten]
    assert ranks[0] == 0
    assert ranks == sorted(ranks)  # forms of one word come once among the ten


def test_a_predictor_says_what_it_is(predictor: Predictor) -> None:
    assert repr(predictor) == "Predictor(describe (describe), fill (fill), embed (embed))"
