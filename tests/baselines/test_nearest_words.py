"""NN-SAN: the concept words of the nearest training clip."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from baselines.small_clips import B, C, N, all_real, padded
from ctsan.baselines.nearest_words import NearestWords
from ctsan.evaluation.concepts import concept_statistics
from ctsan.model.clip_encoder import ClipEncoder

D, V, K = 8, 12, 3


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
