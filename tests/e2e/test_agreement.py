"""The model that the package carries answers with ONNX Runtime as with PyTorch: see bench/agreement.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ctsan.inference.onnx_model import OnnxModel
from ctsan.inference.predictor import EncodedClip, Predictor
from ctsan.inference.torch_model import TorchModel

REPOSITORY = Path(__file__).parents[2]
CLIPS = sorted((REPOSITORY / "examples/clips").glob("*.mp4"))


@pytest.fixture(scope="module")
def agreement() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_agreement", REPOSITORY / "bench/agreement.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def both(agreement: ModuleType) -> tuple[Predictor, Predictor]:
    onnx, pytorch = agreement.load_both(Path("default"))
    assert all(isinstance(model, OnnxModel) for model in onnx.models)
    assert all(isinstance(model, TorchModel) for model in pytorch.models)
    return onnx, pytorch


@pytest.fixture(scope="module", params=CLIPS, ids=lambda path: path.stem)
def clip(request: pytest.FixtureRequest, both: tuple[Predictor, Predictor]) -> EncodedClip:
    """A clip that is decoded, and seen by the backbone, once for both."""
    return both[0].encode(request.param)


def test_both_give_the_same_answers(
    agreement: ModuleType, both: tuple[Predictor, Predictor], clip: EncodedClip
) -> None:
    of_onnx, of_pytorch = (list(agreement.answers(predictor, clip)) for predictor in both)
    assert [asked for asked, _, _ in of_onnx] == ["describe", "concepts", "fill", "choose"]
    for (_, answer, numbers), (_, other_answer, other_numbers) in zip(of_onnx, of_pytorch, strict=True):
        assert answer == other_answer
        np.testing.assert_allclose(numbers, other_numbers, atol=1e-3, rtol=0)


def test_both_say_the_same_of_the_five_best_captions(
    both: tuple[Predictor, Predictor], clip: EncodedClip
) -> None:
    texts = [[each.text for each in predictor.describe(clip, n_best=5).captions] for predictor in both]
    assert len(texts[0]) == 5
    assert texts[0] == texts[1]
