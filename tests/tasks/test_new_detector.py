"""The recipe of CONTRIBUTING.md for a detector: a module, a line in `DETECTORS`, a name in the settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import pytest
import torch
from torch import Tensor, nn

from ctsan.config import Settings, load_settings
from ctsan.config.settings import DetectorName
from ctsan.data.corpus import Clip, Corpus
from ctsan.model.concept_detector import Detection, LearntConceptSource
from ctsan.tasks.clip_encoders import DETECTORS
from ctsan.tasks.description import DescriptionTask
from ctsan.tasks.spec import ModelInputs
from ctsan.text.words import Words
from ctsan.training.initialisation import set_up_task
from ctsan.video.store import FeatureStore

SMALL = (
    "model.hidden_dim=8",
    "detector.num_concepts=3",
    "detector.probe=none",
    "training.out_of_fold=false",
)


class MeanDetector(LearntConceptSource):
    """Names words from the mean of all regions."""

    def __init__(self, *, hidden_dim: int, num_candidates: int) -> None:
        super().__init__()
        self.name = nn.Linear(hidden_dim, num_candidates)

    def forward(self, regions: Tensor, frame_is_real: Tensor) -> Detection:
        batch, frames, _, height, width = regions.shape
        total = (regions.mean(dim=(3, 4)) * frame_is_real[..., None]).sum(dim=1)
        mean = total / frame_is_real.sum(dim=1, keepdim=True)  # (B, D)
        nowhere = regions.new_zeros(batch, frames, 0, height, width)
        return Detection(self.name(mean), nowhere, mean[:, None])


def build(inputs: ModelInputs) -> MeanDetector:
    hidden_dim = inputs.settings.model.hidden_dim
    return MeanDetector(hidden_dim=hidden_dim, num_candidates=len(inputs.words.concepts.words))


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setitem(DETECTORS, "mean", build)
    settings = load_settings("laptop", SMALL)
    return replace(settings, detector=replace(settings.detector, kind=cast("DetectorName", "mean")))


def test_every_kind_that_can_be_set_has_its_line() -> None:
    assert set(get_args(DetectorName)) == set(DETECTORS)


def test_a_new_detector_names_words_and_learns(
    settings: Settings, words: Words, clips: Sequence[Clip], store: FeatureStore
) -> None:
    split = tuple(replace(clip, split="val" if n < 3 else "train") for n, clip in enumerate(clips))
    corpus = Corpus(name="animals", root=Path("none"), format="own", clips=split)
    task = set_up_task("describe", settings, words, store, corpus)
    assert isinstance(task, DescriptionTask)
    detector = task.model.clip_encoder.detector
    assert isinstance(detector, MeanDetector)
    losses = task.losses(task.batch([0, 1], mirrored=[False, False]))
    torch.autograd.backward(losses["concepts"])
    assert detector.name.weight.grad is not None
    assert detector.name.weight.grad.any()
    assert 0 <= task.evaluate()["precision"] <= 1
    assert {len(example.concepts) for example in task.examples()} == {3}
