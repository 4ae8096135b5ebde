"""Where concept words can come from instead of the traces, and what each of them promises."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ctsan.model.average_detector import AverageDetector
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.concept_detector import ConceptDetector, RegionReducer, concept_loss
from ctsan.model.decoupled_detector import DecoupledDetector
from ctsan.model.nearest_words import NearestWords
from ctsan.model.random_words import RandomWords

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


def test_random_words_are_all_as_likely() -> None:
    words = RandomWords(num_candidates=V).eval()
    maps = torch.randn(3000, 1, 1, 1, 4, generator=torch.Generator().manual_seed(1))
    top, _ = words(maps, all_real(maps)).top(K)
    shares = torch.bincount(top.flatten(), minlength=V) / 3000
    assert shares.min() > 0.8 * K / V
    assert shares.max() < 1.2 * K / V


def nearest(maps: Tensor) -> NearestWords:
    words = NearestWords(channels=C, num_candidates=V, num_concepts=K, max_frames=N)
    shares = torch.zeros(B, V)
    for clip in range(B):  # words 0, 1, 2 of the first clip, 3, 4, 5 of the second
        shares[clip, K * clip : K * clip + K] = torch.tensor([0.9, 0.6, 0.3])
    words.know(maps.mean(dim=(1, 2, 3)), shares)
    return words.eval()


def test_a_new_clip_has_the_words_of_the_nearest_training_clip(maps: Tensor) -> None:
    words = nearest(maps)
    found, confidences = words(*padded(maps + 0.05)).top(K)
    assert found.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert torch.allclose(confidences[0], torch.tensor([0.9, 0.6, 0.3]))


def test_a_training_clip_is_not_its_own_neighbour(maps: Tensor) -> None:
    words = nearest(maps)
    for training in (False, True):
        found, _ = words.train(training)(*padded(maps)).top(K)
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
    concept_loss(detection.scores, torch.ones(B, V)).sum().backward()
    assert all(weights.grad is not None for weights in detector.parameters())


def test_a_decoupled_detector_says_what_the_trained_one_says_and_never_learns(maps: Tensor) -> None:
    torch.manual_seed(1)
    reduce = RegionReducer(channels=C, hidden_dim=D)
    trained = ConceptDetector(hidden_dim=D, grid=(H, H), num_candidates=V, attention_dim=4).eval()
    fresh = ConceptDetector(hidden_dim=D, grid=(H, H), num_candidates=V, attention_dim=4)
    decoupled = DecoupledDetector(channels=C, hidden_dim=D, region_kernel=3, detector=fresh)
    means, scales = torch.arange(C).float(), torch.full((C,), 2.0)
    decoupled.start_from(reduce=reduce, detector=trained, means=means, scales=scales)
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
