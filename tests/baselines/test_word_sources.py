"""Where concept words can come from instead of the traces, and what each of them promises."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ctsan.baselines.average_detector import AverageDetector
from ctsan.baselines.decoupled_detector import DecoupledDetector
from ctsan.baselines.nearest_words import NearestWords
from ctsan.baselines.random_words import RandomWords
from ctsan.evaluation.concepts import concept_statistics
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.concept_detector import ConceptDetector, RegionReducer, concept_loss
from ctsan.model.semantic_attention import (
    InputSemanticAttention,
    OutputSemanticAttention,
    attention_regulariser,
)

B, N, H, C, D, V, K = 3, 4, 2, 6, 8, 12, 3


@pytest.fixture
def maps() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(B, N, H, H, C)


def padded(maps: Tensor) -> tuple[Tensor, Tensor]:
    """The same clips with two more frames that are not real."""
    more = torch.cat([maps, torch.full((B, 2, H, H, C), 9.0)], dim=1)
    return more, torch.arange(N + 2).expand(B, -1) < N


def all_real(maps: Tensor) -> Tensor:
    return torch.ones(maps.shape[:2], dtype=torch.bool)


def test_random_words_are_the_clips_own_when_asked_and_drawn_anew_in_training(maps: Tensor) -> None:
    words = RandomWords(num_candidates=V).eval()
    asked = words(maps, all_real(maps)).scores
    assert torch.equal(words(*padded(maps)).scores, asked)
    assert torch.equal(words(maps[1:2], all_real(maps[1:2])).scores, asked[1:2])
    assert not torch.equal(asked[0], asked[1])
    words.train()
    assert not torch.equal(words(maps, all_real(maps)).scores, words(maps, all_real(maps)).scores)


def test_random_words_can_be_the_clips_own_in_training_too(maps: Tensor) -> None:
    words = RandomWords(num_candidates=V, redrawn=False).eval()
    asked = words(maps, all_real(maps)).scores
    words.train()
    assert torch.equal(words(maps, all_real(maps)).scores, asked)
    assert torch.equal(words(*padded(maps)).scores, asked)
    assert not torch.equal(asked[0], asked[1])


def test_random_words_are_all_as_likely() -> None:
    words = RandomWords(num_candidates=V).eval()
    maps = torch.randn(3000, 1, 1, 1, 4, generator=torch.Generator().manual_seed(1))
    top = words(maps, all_real(maps)).scores.topk(K, dim=1).indices
    shares = torch.bincount(top.flatten(), minlength=V) / 3000
    assert shares.min() > 0.8 * K / V
    assert shares.max() < 1.2 * K / V


def nearest(maps: Tensor) -> NearestWords:
    words = NearestWords(channels=C, num_candidates=V, num_concepts=K, max_frames=N)
    shares = torch.zeros(B, V)
    for clip in range(B):  # words 0, 1, 2 of the first clip, 3, 4, 5 of the second
        shares[clip, K * clip : K * clip + K] = torch.tensor([0.9, 0.6, 0.3])
    words.fit(maps.mean(dim=(1, 2, 3)), shares)
    return words.eval()


def test_a_new_clip_has_the_words_of_the_nearest_training_clip(maps: Tensor) -> None:
    words = nearest(maps)
    confidences, found = words(*padded(maps + 0.05)).confidences.topk(K, dim=1)
    assert found.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert torch.allclose(confidences[0], torch.tensor([0.9, 0.6, 0.3]))


def test_a_clip_has_no_more_words_than_the_nearest_one(maps: Tensor) -> None:
    """Of three places two words, one and none: what is left gets no vector, no attention and no mention."""
    words = NearestWords(channels=C, num_candidates=V, num_concepts=K, max_frames=N)
    shares = torch.zeros(B, V)
    shares[0, 7], shares[0, 9], shares[1, 7] = 0.5, 0.9, 0.3
    words.fit(maps.mean(dim=(1, 2, 3)), shares)
    encoder = ClipEncoder(
        channels=C,
        embedding=torch.randn(V, 4),
        candidate_words=torch.arange(V),
        hidden_dim=D,
        detector=words,
        num_concepts=K,
    )
    new = maps + 0.05
    encoding = encoder.eval()(new, all_real(new))
    is_word = encoding.confidences > 0
    assert is_word.sum(dim=1).tolist() == [2, 1, 0]
    assert encoding.concept_words[0, :2].tolist() == [9, 7]
    assert encoding.concept_words[1, 0] == 7
    assert torch.equal((encoding.concepts != 0).any(dim=2), is_word)
    torch.testing.assert_close(encoding.concepts[1, 0], encoder.embedding.weight[7])
    reference = torch.zeros(B, V)
    reference[0, 9] = reference[1, 7] = 1
    measured = concept_statistics(encoding.concept_words, encoding.detection.scores, reference)
    assert measured["precision"].value == pytest.approx((1 / 2 + 1) / 2)  # of the two clips with words


def test_what_is_no_word_gets_no_attention_and_breaks_no_gradient() -> None:
    torch.manual_seed(0)
    concepts = torch.randn(3, K, 4)
    concepts[0, 1:], concepts[1] = 0, 0  # one word, none, all
    words, states = torch.randn(3, 5, 4), torch.randn(3, 5, D)
    read, say = (
        InputSemanticAttention(embedding_dim=4, hidden_dim=D),
        OutputSemanticAttention(embedding_dim=4, hidden_dim=D),
    )
    x, gamma = read(words, concepts)
    said, beta = say(states, concepts)
    for weights in (gamma, beta):
        assert torch.equal(weights[0], torch.tensor([1.0, 0.0, 0.0]).expand(5, K))
        assert not weights[1].any()
        torch.testing.assert_close(weights[2].sum(dim=1), torch.ones(5))
    torch.testing.assert_close(x[1], read.project(words[1]))  # the word alone
    torch.testing.assert_close(said[1], states[1])
    alone, _ = read(words[:1], concepts[:1, :1])
    torch.testing.assert_close(x[:1], alone)
    regularised = attention_regulariser(gamma, torch.ones(3, 5, dtype=torch.bool))
    torch.testing.assert_close(regularised[:2], torch.tensor([5.0 + 25.0, 0.0]))
    torch.autograd.backward(regularised.sum() + x.sum() + said.sum() + beta.square().sum())
    for attention in (read, say):
        for name, weights in attention.named_parameters():
            assert weights.grad is not None, name
            assert weights.grad.isfinite().all(), name


def test_a_training_clip_is_not_its_own_neighbour(maps: Tensor) -> None:
    words = nearest(maps)
    for training in (False, True):
        found = words.train(training)(*padded(maps)).scores.topk(K, dim=1).indices
        assert all(3 * clip not in own for clip, own in enumerate(found.tolist()))


def test_what_nearest_words_know_is_in_their_weights(maps: Tensor) -> None:
    words = nearest(maps)
    read = NearestWords(channels=C, num_candidates=V, num_concepts=K, max_frames=N).eval()
    read.load_state_dict(words.state_dict())
    new = maps + 0.05
    assert torch.equal(read(new, all_real(new)).scores, words(new, all_real(new)).scores)


def test_one_lstm_over_averages_learns_words_and_sees_no_place() -> None:
    torch.manual_seed(0)
    detector = AverageDetector(hidden_dim=D, num_candidates=V).eval()
    regions = torch.randn(B, N, D, H, H)
    real = torch.ones(B, N, dtype=torch.bool)
    detection = detector(regions, real)
    more = torch.cat([regions, torch.ones(B, 1, D, H, H)], dim=1)
    with_padding = detector(more, torch.cat([real, ~real[:, :1]], dim=1))
    assert torch.allclose(with_padding.scores, detection.scores, atol=1e-6)
    assert torch.allclose(detector(regions.flip(-1), real).scores, detection.scores, atol=1e-5)
    assert not torch.allclose(detector(regions.flip(1), real).scores, detection.scores, atol=1e-3)
    torch.autograd.backward(concept_loss(detection.scores, torch.ones(B, V)).sum())
    assert all(weights.grad is not None for weights in detector.parameters())


def test_a_decoupled_detector_says_what_the_trained_one_says_and_never_learns(maps: Tensor) -> None:
    torch.manual_seed(1)
    reduce = RegionReducer(channels=C, hidden_dim=D)
    trained = ConceptDetector(hidden_dim=D, grid=(H, H), num_candidates=V, attention_dim=4).eval()
    fresh = ConceptDetector(hidden_dim=D, grid=(H, H), num_candidates=V, attention_dim=4)
    decoupled = DecoupledDetector(channels=C, hidden_dim=D, region_kernel=3, detector=fresh)
    means, scales = torch.arange(C).float(), torch.full((C,), 2.0)
    decoupled.init_from(reduce=reduce, detector=trained, means=means, scales=scales)
    decoupled.train()
    detection = decoupled(maps, all_real(maps))
    expected = trained(reduce((maps - means) / scales), all_real(maps))
    assert torch.allclose(detection.scores, expected.scores, atol=1e-6)  # without dropout, too
    assert not detection.scores.requires_grad
    assert not any(weights.requires_grad for weights in decoupled.parameters())


def test_a_dropped_channel_is_dropped_in_the_whole_clip(maps: Tensor) -> None:
    encoder = ClipEncoder(
        channels=C,
        embedding=torch.randn(V, 4),
        candidate_words=torch.arange(V),
        hidden_dim=C,
        detector=None,
        num_concepts=K,
        region_kernel=1,
        channel_dropout=0.5,
    )
    with torch.no_grad():  # a region is then the channels at its place
        encoder.reduce.conv.weight.copy_(torch.eye(C)[..., None, None])
    seen = encoder.regions(maps).movedim(2, -1)
    kept = seen != 0
    assert torch.equal(kept, kept[:, :1, :1, :1].expand_as(kept))
    assert torch.allclose(seen[kept], 2 * maps[kept])
    assert 0 < kept.float().mean() < 1
    assert torch.equal(encoder.eval().regions(maps).movedim(2, -1), maps)
