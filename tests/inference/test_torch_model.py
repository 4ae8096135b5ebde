"""What a model makes of clips, wherever its clip encoder is."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch

from built_runs import built_run, encode
from ctsan.config import load_settings
from ctsan.data.batches import pad_maps
from ctsan.data.corpus import Clip
from ctsan.inference.loaded_model import ClipEncoding, Floats, Ints
from ctsan.inference.torch_model import TorchModel
from ctsan.inference.torch_model import load_torch_model as load_model
from ctsan.text.words import Words
from ctsan.video.store import FeatureStore

KINDS = {
    "traces": ("describe", ("detector.probe=mlp",)),
    "temporal": ("describe", ("model.decoder=temporal", "detector.enabled=false")),
    "pooled": ("describe", ("model.decoder=pooled", "detector.enabled=false")),
    "s2vt": ("describe", ("model.decoder=s2vt", "detector.enabled=false")),
    "blank": ("fill", ()),
    "embedding": ("embed", ()),
}


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest, words: Words, store: FeatureStore) -> TorchModel:
    task: str
    task, overrides = KINDS[request.param]
    sizes = ("model.hidden_dim=12", "model.embedding_dim=8", "detector.attention_dim=4")
    settings = load_settings("laptop", (*sizes, "detector.num_concepts=3", *overrides))
    found = load_model(built_run(task, settings, words, store, seed=0))
    assert isinstance(found, TorchModel)
    return found


def with_encoder(model: TorchModel, device_encoder: torch.nn.Module) -> TorchModel:
    """The model as on a machine where a copy of its encoder is on a GPU."""
    other = type(model)(model.run)
    other._device_encoder = device_encoder
    return other


def arrays_of(encoding: ClipEncoding) -> dict[str, Floats | Ints]:
    detection = encoding.detection
    found: dict[str, Floats | Ints | None] = {
        "hidden": encoding.hidden,
        "cell": encoding.cell,
        "concepts": encoding.concepts,
        "concept words": encoding.concept_words,
        "confidences": encoding.confidences,
        "all confidences": None if detection is None else detection.confidences,
        "probe confidences": None if detection is None else detection.probe_confidences,
        "attention": None if detection is None else detection.attention,
        "states": None if detection is None else detection.states,
    }
    return {name: array for name, array in found.items() if array is not None}


def test_an_encoder_on_another_device_encodes_the_same(
    model: TorchModel, clips: list[Clip], store: FeatureStore
) -> None:
    device_encoder = deepcopy(model.run.model.clip_encoder)
    maps = [store[clip.id].maps for clip in clips[:3]]
    own, others = (each.encode(maps) for each in (model, with_encoder(model, device_encoder)))
    assert arrays_of(own).keys() == arrays_of(others).keys()
    for name, array in arrays_of(own).items():
        np.testing.assert_array_equal(arrays_of(others)[name], array, err_msg=name)
    with torch.no_grad():
        device_encoder.embedding.weight.zero_()  # what they see is what is told
    if own.concept_words.shape[1]:
        assert not with_encoder(model, device_encoder).encode(maps).concepts.any()


def test_arrays_are_the_tensors_of_the_encoder(
    model: TorchModel, clips: list[Clip], store: FeatureStore
) -> None:
    maps = [store[clip.id].maps for clip in clips[:3]]
    tensors, found = encode(model.run, maps), arrays_of(model.encode(maps))
    expected = {
        "hidden": tensors.state.hidden,
        "cell": tensors.state.cell,
        "concepts": tensors.concepts,
        "concept words": tensors.concept_words,
        "confidences": tensors.confidences,
    }
    if (detection := tensors.detection) is not None:
        expected |= {
            "all confidences": detection.confidences,
            "attention": detection.attention,
            "states": detection.states,
        }
        if detection.probed is not None:
            expected["probe confidences"] = detection.probed.sigmoid()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor.numpy(), err_msg=name)


def test_an_encoder_computes_on_one_device_only(
    model: TorchModel, clips: list[Clip], store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on the device meta has no numbers, and nothing that is elsewhere can be computed with it."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)  # which meta does not know
    # The detector asks by which frames a clip has ended, to leave out some work: none of these has.
    monkeypatch.setattr(torch.Tensor, "tolist", lambda asked: [False] * len(asked))
    meta, encoder = torch.device("meta"), model.run.model.clip_encoder
    device_encoder = deepcopy(encoder).to(meta)
    maps, frame_is_real = (each.to(meta) for each in pad_maps([store[clip.id].maps for clip in clips[:3]]))
    with torch.inference_mode():
        seen = device_encoder(maps, frame_is_real)
        with pytest.raises((RuntimeError, NotImplementedError)):
            deepcopy(encoder)(maps, frame_is_real)
    assert seen.state.hidden.device == seen.concepts.device == meta
