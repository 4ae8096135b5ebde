"""S2VT, temporal attention and mean pooling: what they read at once is what they say word by word."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.description_model import DescriptionModel
from ctsan.model.mean_pooling import PooledDecoder, PooledEncoder
from ctsan.model.s2vt import S2VTDecoder, S2VTStack
from ctsan.model.temporal_attention import FrameEncoder, TemporalAttentionDecoder

B, N, H, C, D, E, WORDS, T = 2, 4, 2, 6, 8, 5, 11, 6


def s2vt() -> DescriptionModel:
    torch.manual_seed(0)
    stack = S2VTStack(hidden_dim=D, embedding_dim=E)
    encoder = ClipEncoder(
        channels=C,
        embedding=torch.randn(WORDS, E),
        candidate_words=torch.arange(3),
        hidden_dim=D,
        detector=None,
        num_concepts=2,
        video_encoder=stack,
    )
    decoder = S2VTDecoder(stack=stack, num_words=WORDS)
    return DescriptionModel(clip_encoder=encoder, hidden_dim=D, decoder=decoder).eval()


def temporal() -> DescriptionModel:
    torch.manual_seed(0)
    encoder = FrameEncoder(
        channels=C,
        embedding=torch.randn(WORDS, E),
        candidate_words=torch.arange(3),
        hidden_dim=D,
        num_concepts=2,
        max_frames=N + 3,
    )
    decoder = TemporalAttentionDecoder(num_words=WORDS, embedding_dim=E, hidden_dim=D)
    return DescriptionModel(clip_encoder=encoder, hidden_dim=D, decoder=decoder).eval()


def pooled() -> DescriptionModel:
    torch.manual_seed(0)
    encoder = PooledEncoder(
        channels=C, embedding=torch.randn(WORDS, E), candidate_words=torch.arange(3), hidden_dim=D
    )
    decoder = PooledDecoder(embedding=encoder.embedding, hidden_dim=D)
    return DescriptionModel(clip_encoder=encoder, hidden_dim=D, decoder=decoder, say_from_words=True).eval()


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


def test_mean_pooling_says_words_by_the_vectors_that_it_reads_them_by() -> None:
    model = pooled()
    model.load_state_dict(model.state_dict())
    assert model.decode.say.weight is model.clip_encoder.embedding.weight
