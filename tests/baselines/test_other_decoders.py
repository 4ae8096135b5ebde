"""S2VT, temporal attention and mean pooling: their equations, and that word by word is as all at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from ctsan.baselines.mean_pooling import PooledDecoder, PooledEncoder
from ctsan.baselines.s2vt import S2VTDecoder, S2VTStack
from ctsan.baselines.temporal_attention import FrameEncoder, TemporalAttentionDecoder
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.description_model import DescriptionModel
from worked_out import draw, lstm, lstm_step, numbers, softmax, stirred

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
    return DescriptionModel(
        clip_encoder=encoder, hidden_dim=D, decoder=decoder, init_output_from_embeddings=True
    ).eval()


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


def reduced_frames(model: DescriptionModel, maps: Tensor) -> np.ndarray:
    """(B, N, D): the 3x3 convolution of each frame's map, cell by cell, averaged over the grid."""
    weight = numbers(model)["clip_encoder.reduce.conv.weight"]  # (D, C, 3, 3)
    padded = np.pad(maps.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1), (0, 0)))
    cells = [
        np.einsum("bnijc,dcij->bnd", padded[:, :, row : row + 3, column : column + 3], weight)
        for row in range(H)
        for column in range(H)
    ]
    averages: np.ndarray = np.mean(cells, axis=0)
    return averages


LENGTHS = [4, 2]  # the second clip has two frames, then padding
READ = torch.tensor([[3, 7, 1, 5, 9, 2], [4, 4, 10, 0, 6, 8]])


def test_s2vt_is_two_lstms_that_watch_and_then_speak() -> None:
    """Venugopalan et al., figure 2: zeros stand for words while frames come in, then for frames."""
    model = stirred(s2vt())
    maps = draw(B, N, H, H, C)
    encoding = model.clip_encoder(maps, torch.arange(N) < torch.tensor(LENGTHS)[:, None])
    scores = model(READ, encoding).scores.detach().numpy()
    w, nothing = numbers(model), np.zeros((1, D))
    frames, no_frame, no_word = reduced_frames(model, maps), np.zeros(D), np.zeros(E)
    for b, length in enumerate(LENGTHS):
        words = w["clip_encoder.embedding.weight"][READ[b].tolist()]
        first = lstm(w, "decode.stack.watch", [*frames[b, :length], *[no_frame] * T], nothing, nothing)
        beside = [*[no_word] * length, *words]
        joined = [np.concatenate(pair) for pair in zip(first, beside, strict=True)]
        second = lstm(w, "decode.stack.speak", joined, nothing, nothing)[length:]
        wanted = [w["decode.say.weight"] @ state + w["decode.say.bias"] for state in second]
        np.testing.assert_allclose(scores[b], wanted, atol=1e-9)


def test_temporal_attention_weighs_all_frames_anew_before_each_word() -> None:
    """Yao et al.: e_i = wᵀ tanh(W_a h + U_a v_i + b_a), φ = Σ α_i v_i, U_p tanh(W_p [h, φ, y] + b_p) + d.

    The first state is tanh of a layer on the mean frame.
    """
    model = stirred(temporal())
    maps = draw(B, N, H, H, C)
    encoding = model.clip_encoder(maps, torch.arange(N) < torch.tensor(LENGTHS)[:, None])
    scores = model(READ, encoding).scores.detach().numpy()
    w = numbers(model)
    begin, decode = "clip_encoder.encode_video.begin.", "decode."
    for b, length in enumerate(LENGTHS):
        frames = reduced_frames(model, maps)[b, :length]
        start = np.tanh(w[begin + "weight"] @ frames.mean(axis=0) + w[begin + "bias"])
        hidden, cell = start[None, :D], start[None, D:]
        for t, word in enumerate(w["clip_encoder.embedding.weight"][READ[b].tolist()]):
            by_state = w[decode + "from_state.weight"] @ hidden[0] + w[decode + "from_state.bias"]
            energies = [
                w[decode + "weigh.weight"][0] @ np.tanh(by_state + w[decode + "from_frame.weight"] @ frame)
                for frame in frames
            ]
            phi = softmax(np.array(energies)) @ frames
            hidden, cell = lstm_step(w, "decode.lstm", np.concatenate([word, phi]), hidden, cell)
            joined = np.concatenate([hidden[0], phi, word])
            joined = np.tanh(w[decode + "join.weight"] @ joined + w[decode + "join.bias"])
            wanted = w[decode + "say.weight"] @ joined + w[decode + "say.bias"]
            np.testing.assert_allclose(scores[b, t], wanted, atol=1e-9)


def test_mean_pooling_says_words_by_the_vectors_that_it_reads_them_by() -> None:
    model = pooled()
    model.load_state_dict(model.state_dict())
    assert model.decode.say.weight is model.clip_encoder.embedding.weight
