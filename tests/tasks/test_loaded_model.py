"""What a member makes of clips, wherever its clip encoder is."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from ctsan.config import load_settings
from ctsan.data.batches import pad_maps
from ctsan.data.corpus import Clip
from ctsan.tasks.building import Model, build_model
from ctsan.tasks.loaded_model import LoadedModel
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
def member(request: pytest.FixtureRequest, words: Words, store: FeatureStore) -> LoadedModel[Model]:
    task: str
    task, overrides = KINDS[request.param]
    sizes = ("model.hidden_dim=12", "model.embedding_dim=8", "detector.attention_dim=4")
    settings = load_settings("laptop", (*sizes, "detector.num_concepts=3", *overrides))
    model = build_model(task, settings, words, grid=store.grid, channels=store.channels, seed=0)
    return LoadedModel(model.eval(), words, max_frames=10, max_words=6)


def test_an_encoder_on_another_device_encodes_the_same(
    member: LoadedModel[Model], clips: list[Clip], store: FeatureStore
) -> None:
    device_encoder = deepcopy(member.model.clip_encoder)
    maps = [store[clip.id].maps for clip in clips[:3]]
    own, others = (each.encode(maps) for each in (member, replace(member, device_encoder=device_encoder)))
    torch.testing.assert_close(others, own, rtol=0, atol=0)
    with torch.no_grad():
        device_encoder.embedding.weight.zero_()  # what they see is what is told
    if own.concept_words.shape[1]:
        assert not replace(member, device_encoder=device_encoder).encode(maps).concepts.any()


def test_an_encoder_computes_on_one_device_only(
    member: LoadedModel[Model], clips: list[Clip], store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on the device meta has no numbers, and nothing that is elsewhere can be computed with it."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)  # which meta does not know
    # The detector asks by which frames a clip has ended, to leave out some work: none of these has.
    monkeypatch.setattr(torch.Tensor, "tolist", lambda asked: [False] * len(asked))
    meta = torch.device("meta")
    device_encoder = deepcopy(member.model.clip_encoder).to(meta)
    maps, frame_is_real = (each.to(meta) for each in pad_maps([store[clip.id].maps for clip in clips[:3]]))
    with torch.inference_mode():
        seen = device_encoder(maps, frame_is_real)
        with pytest.raises((RuntimeError, NotImplementedError)):
            deepcopy(member.model.clip_encoder)(maps, frame_is_real)
    assert seen.state.hidden.device == seen.concepts.device == meta
