"""What S2VT, temporal attention and mean pooling have in common: word by word is as all at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from baselines.decoders import WORDS, B, C, H, N, T, pooled, s2vt, temporal
from ctsan.model.description_model import DescriptionModel

MODELS = pytest.mark.parametrize("model", [s2vt(), temporal(), pooled()], ids=["s2vt", "temporal", "pooled"])


def clips() -> tuple[Tensor, Tensor]:
    return torch.randn(B, N, H, H, C, generator=torch.Generator().manual_seed(2)), torch.ones(B, N) > 0


@MODELS
@torch.no_grad()
def test_word_by_word_is_the_same_as_all_at_once(model: DescriptionModel) -> None:
    words = torch.randint(WORDS, (B, T), generator=torch.Generator().manual_seed(3))
    encoding = model.clip_encoder(*clips())
    at_once = model(words, encoding).scores.log_softmax(dim=-1)
    state = encoding.state
    for step in range(T):
        said, state = model.next_words(words[:, step], encoding.concepts, state)
        assert torch.allclose(said, at_once[:, step], atol=1e-5)


@MODELS
@torch.no_grad()
def test_padded_frames_change_nothing_and_the_order_of_words_does(model: DescriptionModel) -> None:
    maps, real = clips()
    words = torch.randint(WORDS, (B, T), generator=torch.Generator().manual_seed(3))
    said = model(words, model.clip_encoder(maps, real)).scores
    more = torch.cat([maps, torch.full((B, 2, H, H, C), 7.0)], dim=1)
    padded = model.clip_encoder(more, torch.cat([real, ~real[:, :2]], dim=1))
    assert torch.allclose(model(words, padded).scores, said, atol=1e-5)
    assert not torch.allclose(model(words.flip(1), padded).scores[:, -1], said[:, -1], atol=1e-3)


@MODELS
def test_all_that_they_have_is_learnt_from_words(model: DescriptionModel) -> None:
    words = torch.randint(WORDS, (B, T), generator=torch.Generator().manual_seed(3))
    model.zero_grad()
    model(words, model.clip_encoder(*clips())).scores.logsumexp(dim=-1).sum().backward()
    unused = {name for name, weights in model.named_parameters() if weights.grad is None}
    assert not unused


@torch.no_grad()
def test_only_s2vt_knows_the_order_of_frames() -> None:
    maps, real = clips()
    words = torch.randint(WORDS, (B, T), generator=torch.Generator().manual_seed(3))
    for model, knows in ((temporal(), False), (pooled(), False), (s2vt(), True)):
        said, turned = (model(words, model.clip_encoder(seen, real)).scores for seen in (maps, maps.flip(1)))
        assert torch.allclose(said, turned, atol=1e-5) is not knows
