"""Questions that wait at the same time are answered together, and as they would be alone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from httpx import Client

from ctsan.errors import UsageError, VideoError
from ctsan.inference.featurizer import ClipFeatures, ClipFeaturizer
from ctsan.inference.results import Description
from ctsan.runs.trained_run import load_runs
from ctsan.video.backbones import network_key
from ctsan.video.clip_maps import ClipMaps
from ctsan.web.app import create_app
from ctsan.web.errors import BusyError
from ctsan.web.feature_cache import ClipPredictor
from ctsan.web.limits import Limits
from ctsan.web.model_thread import ModelThread
from web.serving import served, until, upload

SENTENCES = ["a blue square moves", "the yellow heart grows", "a shape on the water"]


class Asked:
    """Doubles numbers and notes how many were asked for at a time; the first call waits for a sign."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.calls: list[list[int]] = []

    def double(self, numbers: Sequence[int]) -> list[int]:
        self.calls.append(list(numbers))
        assert self.may_go.wait(10)
        if 13 in numbers:
            raise UsageError("13 brings bad luck")
        return [2 * number for number in numbers]

    def triple(self, numbers: Sequence[int]) -> list[int]:
        self.calls.append(list(numbers))
        return [3 * number for number in numbers]


def all_answers(
    asked: Asked, questions: Sequence[tuple[Callable[[Asked, Sequence[int]], list[int]], int]], most: int = 32
) -> list[int | BaseException]:
    """What is answered when the first question is already asked as the others arrive."""

    async def ask() -> list[int | BaseException]:
        thread = ModelThread(questions=most, together=4)
        answers = [asyncio.create_task(thread.ask(asked, verb, number)) for verb, number in questions]
        while not asked.calls:
            await asyncio.sleep(0.01)
        asked.may_go.set()
        found = await asyncio.gather(*answers, return_exceptions=True)
        thread.stop()
        return found

    return asyncio.run(ask())


def test_what_waits_goes_together_in_its_turn() -> None:
    asked = Asked()
    questions = [(Asked.double, 0), *((Asked.double, number) for number in range(1, 8)), (Asked.triple, 9)]
    assert all_answers(asked, questions) == [0, 2, 4, 6, 8, 10, 12, 14, 27]
    assert asked.calls == [[0, 1, 2, 3], [4, 5, 6, 7], [9]]


def test_other_questions_are_not_mixed_in() -> None:
    asked = Asked()
    questions = [(Asked.double, 1), (Asked.triple, 2), (Asked.double, 3), (Asked.triple, 4)]
    assert all_answers(asked, questions) == [2, 6, 6, 12]
    assert asked.calls == [[1, 3], [2, 4]]


def test_a_question_that_fails_fails_alone() -> None:
    asked = Asked()
    found = all_answers(asked, [(Asked.double, number) for number in (11, 12, 13, 14)])
    assert found[:2] == [22, 24]
    assert isinstance(found[2], UsageError)
    assert found[3] == 28
    assert asked.calls == [[11, 12, 13, 14], [11], [12], [13], [14]]


def test_no_more_wait_than_may() -> None:
    found = all_answers(Asked(), [(Asked.double, number) for number in range(5)], most=3)
    assert found[:3] == [0, 2, 4]
    assert [type(each) for each in found[3:]] == [BusyError, BusyError]


class CountingPredictor(ClipPredictor):
    """Notes how many clips it describes at a time, and takes its time for the first."""

    together: list[int]

    def described(self, clips: Sequence[Path]) -> list[Description]:
        self.together.append(len(clips))
        if len(self.together) == 1:
            time.sleep(1)
        return super().described(clips)


def test_clients_are_answered_together_as_one_by_one(models: list[Path], corpus: Path) -> None:
    files = sorted((corpus / "clips").glob("*.mp4"))[:6]

    def ask(client: Client, clip: str, what: str) -> object:
        path = f"/api/clips/{clip}/{what}"
        match what:
            case "fill":
                answer = client.post(path, json={"sentence": "the ___ moves to the ___"})
            case "choose":
                answer = client.post(path, json={"sentences": SENTENCES})
            case _:
                answer = client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def answers(at_once: int) -> tuple[list[object], list[int]]:
        predictor = CountingPredictor(load_runs(models[:3]))
        predictor.together = []
        with (
            served(create_app(predictor, limits=Limits(workers=1))) as client,
            ThreadPoolExecutor(at_once) as clients,
        ):
            clips = [upload(client, file) for file in files]
            for clip in clips:
                until(client, clip, "ready")
            found = []
            for what in ("description", "fill", "choose", "traces"):
                found += clients.map(ask, [client] * len(clips), clips, [what] * len(clips))
        return found, predictor.together

    alone, ones = answers(1)
    together, batches = answers(6)
    assert max(ones) == 1
    assert max(batches) >= 4
    for one, other in zip(alone, together, strict=True):
        assert_same(one, other)


def assert_same(one: object, other: object) -> None:
    """The same words in the same places, and numbers that differ by rounding at most."""
    if isinstance(one, dict):
        assert isinstance(other, dict)
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list):
        assert isinstance(other, list)
        assert len(one) == len(other)
        for own, others in zip(one, other, strict=True):
            assert_same(own, others)
    else:
        assert one == (pytest.approx(other, abs=2e-4) if isinstance(one, float) else other)


@pytest.fixture(scope="module")
def predictor(models: list[Path]) -> ClipPredictor:
    """It has seen clips of 3 to 7 frames, by the names `0` to `4`."""
    predictor = ClipPredictor(load_runs(models[:1]))
    recipe, random = predictor.runs[0].recipe, np.random.default_rng(0)
    for clip in range(5):
        shape = (clip + 3, *recipe.grid, recipe.channels)
        maps = np.abs(random.normal(size=shape)).astype(np.float16)
        found = ClipMaps(clip + 3, np.arange(clip + 3), maps)
        predictor.clips.add(str(clip), {network_key(recipe): found}, np.arange(clip + 3) / 5)
    return predictor


def test_clips_of_different_lengths_are_encoded_together(predictor: ClipPredictor) -> None:
    clips, runs = [Path(str(clip)) for clip in range(5)], predictor.runs
    predictor.prepare(clips, "describe")
    for clip in clips:
        [look] = predictor.clips.featurize_all([clip], runs)
        assert isinstance(look, ClipFeatures)
        [kept] = predictor.clips.encode([look], runs)
        [own] = ClipFeaturizer.encode(predictor.clips, [look], runs)
        assert own.detection is not None
        assert kept.detection is not None
        torch.testing.assert_close(kept.state, own.state, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(kept.detection, own.detection, rtol=1e-3, atol=1e-4)  # frame by frame
        assert torch.equal(kept.concept_words, own.concept_words)


def test_a_clip_that_is_forgotten_while_it_is_encoded_is_not_kept(predictor: ClipPredictor) -> None:
    looks = list(predictor.clips.featurize_all([Path("0"), Path("1")], predictor.runs))
    predictor.clips.forget("0")
    predictor.clips.encode([look for look in looks if isinstance(look, ClipFeatures)], predictor.runs)
    with pytest.raises(VideoError, match="forgotten"):
        predictor.described([Path("1"), Path("0")])
    assert predictor.described([Path("1")])[0].caption
