"""Waiting requests are answered in batches, with the same answers as one by one."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from httpx import Client

from ctsan.errors import UsageError, VideoError
from ctsan.inference.encoded_clip import AnyClip, EncodedClip
from ctsan.inference.featurizer import ClipFeatures
from ctsan.inference.loaded_model import ClipEncoding
from ctsan.inference.loading import load_models
from ctsan.inference.predictor import Predictor
from ctsan.inference.results import Description
from ctsan.video.backbones import network_key
from ctsan.video.clip_maps import ClipMaps
from ctsan.video.store import Maps
from ctsan.web.answering import describe_clips
from ctsan.web.app import create_app
from ctsan.web.clips import ClipStore
from ctsan.web.errors import BusyError, NotFoundError
from ctsan.web.limits import Limits
from ctsan.web.model_thread import ModelThread
from web.serving import load_predictor, served, until, upload

SENTENCES = ["a blue square moves", "the yellow heart grows", "a shape on the water"]


class BatchRecorder:
    """Doubles or triples numbers and records the batches; the first call blocks until `may_go` is set."""

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


def answers_to(
    recorder: BatchRecorder,
    requests: Sequence[tuple[Callable[[BatchRecorder, Sequence[int]], list[int]], int]],
    max_pending: int = 32,
) -> list[int | BaseException]:
    """The answers to requests that arrive while the first is being answered."""

    async def ask() -> list[int | BaseException]:
        thread = ModelThread(max_pending=max_pending, max_batch=4)
        answers = [
            asyncio.create_task(thread.submit(recorder, function, number)) for function, number in requests
        ]
        while not recorder.calls:
            await asyncio.sleep(0.01)
        recorder.may_go.set()
        results = await asyncio.gather(*answers, return_exceptions=True)
        thread.stop()
        return results

    return asyncio.run(ask())


def test_waiting_requests_are_batched_in_order() -> None:
    recorder = BatchRecorder()
    requests = [
        (BatchRecorder.double, 0),
        *((BatchRecorder.double, number) for number in range(1, 8)),
        (BatchRecorder.triple, 9),
    ]
    assert answers_to(recorder, requests) == [0, 2, 4, 6, 8, 10, 12, 14, 27]
    assert recorder.calls == [[0, 1, 2, 3], [4, 5, 6, 7], [9]]


def test_requests_of_other_kinds_are_not_mixed_in() -> None:
    recorder = BatchRecorder()
    requests = [
        (BatchRecorder.double, 1),
        (BatchRecorder.triple, 2),
        (BatchRecorder.double, 3),
        (BatchRecorder.triple, 4),
    ]
    assert answers_to(recorder, requests) == [2, 6, 6, 12]
    assert recorder.calls == [[1, 3], [2, 4]]


def test_a_request_that_fails_fails_alone() -> None:
    recorder = BatchRecorder()
    answers = answers_to(recorder, [(BatchRecorder.double, number) for number in (11, 12, 13, 14)])
    assert answers[:2] == [22, 24]
    assert isinstance(answers[2], UsageError)
    assert answers[3] == 28
    assert recorder.calls == [[11, 12, 13, 14], [11], [12], [13], [14]]


def test_requests_beyond_the_limit_are_rejected() -> None:
    answers = answers_to(
        BatchRecorder(), [(BatchRecorder.double, number) for number in range(5)], max_pending=3
    )
    assert answers[:3] == [0, 2, 4]
    assert [type(answer) for answer in answers[3:]] == [BusyError, BusyError]


class CountingPredictor(Predictor):
    """Records how many clips it describes at a time; the first call is slow."""

    batch_sizes: list[int]

    def describe_all(self, clips: Iterable[AnyClip], **options: Any) -> Iterator[Description | VideoError]:
        clips = list(clips)
        self.batch_sizes.append(len(clips))
        if len(self.batch_sizes) == 1:
            time.sleep(1)
        return super().describe_all(clips, **options)


def test_batched_answers_are_those_of_single_requests(models: list[Path], corpus: Path) -> None:
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
        predictor = CountingPredictor(load_models(models[:3]))
        predictor.batch_sizes = []
        with (
            served(create_app(predictor, limits=Limits(workers=1))) as client,
            ThreadPoolExecutor(at_once) as clients,
        ):
            clips = [upload(client, file) for file in files]
            for clip in clips:
                until(client, clip, "ready")
            found: list[object] = []
            for what in ("description", "fill", "choose", "traces"):
                found += clients.map(ask, [client] * len(clips), clips, [what] * len(clips))
        return found, predictor.batch_sizes

    single, single_sizes = answers(1)
    batched, batch_sizes = answers(6)
    assert max(single_sizes) == 1
    assert max(batch_sizes) >= 4
    for one, other in zip(single, batched, strict=True):
        assert_same(one, other)


def assert_same(one: object, other: object) -> None:
    """The same structure and words, and the same numbers up to rounding."""
    if isinstance(one, dict):
        assert isinstance(other, dict)
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list):
        assert isinstance(other, list)
        assert len(one) == len(other)
        for item, other_item in zip(one, other, strict=True):
            assert_same(item, other_item)
    else:
        assert one == (pytest.approx(other, abs=2e-4) if isinstance(one, float) else other)


@pytest.fixture(scope="module")
def predictor(models: list[Path]) -> Predictor:
    return load_predictor(models[:1])


@pytest.fixture
def encoded(predictor: Predictor) -> list[EncodedClip]:
    """Clips of 3 to 7 frames that no model has encoded yet."""
    recipe, random = predictor.models[0].recipe, np.random.default_rng(0)
    clips = []
    for clip in range(5):
        shape = (clip + 3, *recipe.grid, recipe.channels)
        maps = np.abs(random.normal(size=shape)).astype(np.float16)
        clip_maps = {network_key(recipe): ClipMaps(clip + 3, np.arange(clip + 3), maps)}
        clips.append(EncodedClip(ClipFeatures(str(clip), np.arange(clip + 3) / 5, clip_maps)))
    return clips


def test_clips_of_different_lengths_are_encoded_together(
    predictor: Predictor, encoded: list[EncodedClip], monkeypatch: pytest.MonkeyPatch
) -> None:
    [model] = predictor.models
    alone = [EncodedClip(clip.features).encoding(model) for clip in encoded]
    batch_sizes, encode = [], model.encode

    def counted(clips: Sequence[Maps]) -> ClipEncoding:
        batch_sizes.append(len(clips))
        return encode(clips)

    monkeypatch.setattr(model, "encode", counted)
    predictor.prepare(encoded, "describe")
    predictor.prepare(encoded[:2], "describe")
    for clip, single in zip(encoded, alone, strict=True):
        batched = clip.encoding(model)
        assert single.detection is not None
        assert batched.detection is not None
        for name in ("hidden", "cell"):
            assert_close(getattr(batched, name), getattr(single, name))
        for name in ("confidences", "attention", "states"):  # every frame
            assert_close(getattr(batched.detection, name), getattr(single.detection, name))
        if single.detection.probe_confidences is not None:
            assert_close(batched.detection.probe_confidences, single.detection.probe_confidences)
        assert np.array_equal(batched.concept_words, single.concept_words)
    assert batch_sizes == [5]


def assert_close(found: object, expected: object) -> None:
    assert isinstance(found, np.ndarray)
    assert isinstance(expected, np.ndarray)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_a_clip_that_is_removed_while_it_is_encoded_is_not_kept(
    predictor: Predictor, encoded: list[EncodedClip], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for clip_of_two in encoded[:2]:
        (tmp_path / clip_of_two.name).touch()
    store = ClipStore(Limits())
    for own in encoded[:2]:
        (tmp_path / own.name).touch()
    clips = [store.add(tmp_path / clip.name) for clip in encoded[:2]]
    for clip, own in zip(clips, encoded[:2], strict=True):
        clip.encoded = own
    held, ids = [weakref.ref(own) for own in encoded[:2]], [clip.id for clip in clips]
    [model] = predictor.models
    encode = model.encode

    def removing(maps: Sequence[Maps]) -> ClipEncoding:
        store.remove(clips[0])
        return encode(maps)

    monkeypatch.setattr(model, "encode", removing)
    assert all(answer.caption for answer in describe_clips(predictor, [(clip, None) for clip in clips]))
    with pytest.raises(NotFoundError, match="forgotten"):
        store.get(ids[0])
    del clip, own, clips[0], encoded[:]
    gc.collect()
    assert [ref() is None for ref in held] == [True, False]
    assert describe_clips(predictor, [(store.get(ids[1]), None)])[0].caption
    store.close()
