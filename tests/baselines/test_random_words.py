"""rand-SAN: concept words drawn at random."""

from __future__ import annotations

import torch
from torch import Tensor

from baselines.small_clips import all_real, padded
from ctsan.baselines.random_words import RandomWords

V, K = 12, 3


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
