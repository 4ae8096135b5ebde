"""Compact bilinear pooling against the outer product that it stands for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from ctsan.model.compact_bilinear import CompactBilinear

FIRST, SECOND = 6, 9


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def pool(out: int = 16, seed: int = 0) -> CompactBilinear:
    return CompactBilinear(first_dim=FIRST, second_dim=SECOND, out_dim=out, seed=seed).double()


@pytest.mark.parametrize("out", [1, 15, 16, 40])
def test_it_is_the_count_sketch_of_the_outer_product(out: int) -> None:
    nu = pool(out)
    first, second = draw(3, FIRST), draw(3, SECOND, seed=1)
    h1, s1, h2, s2 = (
        buffer.numpy() for buffer in (nu.first_hash, nu.first_sign, nu.second_hash, nu.second_sign)
    )
    wanted = np.zeros((3, out))
    for row, i, j in itertools.product(range(3), range(FIRST), range(SECOND)):
        outer = float(first[row, i] * second[row, j])
        wanted[row, (h1[i] + h2[j]) % out] += s1[i] * s2[j] * outer
    np.testing.assert_allclose(nu(first, second).numpy(), wanted, atol=1e-12)


def test_inner_products_are_those_of_the_outer_products_in_expectation() -> None:
    # Positive entries, so that sums without signs or with unevenly spread places would come out too large.
    a, b = draw(FIRST).abs(), draw(FIRST, seed=1).abs()
    x, y = draw(SECOND, seed=2).abs(), draw(SECOND, seed=3).abs()
    wanted = float((a @ b) * (x @ y))
    spread = {}
    for out in (8, 128):
        sketches = (pool(out, seed) for seed in range(400))
        found = np.array([float(nu(a, x) @ nu(b, y)) for nu in sketches])
        spread[out] = found.std()
        assert abs(found.mean() - wanted) < 3 * spread[out] / np.sqrt(400)
    assert spread[128] < spread[8] / 2  # a wider sketch is closer to it: about 1 / sqrt(out)


def test_places_and_signs_follow_from_the_seed_alone_and_are_saved() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    saved = pool(seed=3).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert set(saved) == {"first_hash", "first_sign", "second_hash", "second_sign"}
    torch.manual_seed(2)
    assert all(torch.equal(buffer, saved[name]) for name, buffer in pool(seed=3).state_dict().items())
    other = pool(seed=4)
    vectors = draw(FIRST), draw(SECOND)
    assert not torch.allclose(other(*vectors), pool(seed=3)(*vectors))
    other.load_state_dict(saved)
    assert torch.equal(other(*vectors), pool(seed=3)(*vectors))
    assert not list(other.parameters())


def test_every_place_and_both_signs_are_drawn() -> None:
    nu = CompactBilinear(first_dim=500, second_dim=500, out_dim=10, seed=0)
    for places, signs in ((nu.first_hash, nu.first_sign), (nu.second_hash, nu.second_sign)):
        assert torch.bincount(places, minlength=10).min() > 25
        assert set(signs.tolist()) == {-1.0, 1.0}
        assert abs(float(signs.sum())) < 75
    assert not torch.equal(nu.first_hash, nu.second_hash)


def test_a_kept_transform_serves_many_second_vectors() -> None:
    nu = pool()
    clips, queries = draw(2, FIRST), draw(3, SECOND, seed=1)
    kept = nu.sketch_first(clips)
    assert kept.shape == (2, 9)
    pairs = nu.combine(kept[:, None], nu.sketch_second(queries))  # (2, 3, 16)
    for row, column in itertools.product(range(2), range(3)):
        torch.testing.assert_close(pairs[row, column], nu(clips[row], queries[column]))


def test_gradients_are_those_of_the_numbers() -> None:
    vectors = draw(2, FIRST).requires_grad_(), draw(2, SECOND, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(pool(), vectors)


@pytest.mark.parametrize("out", [1, 15, 40])
def test_a_map_of_the_pooled_is_a_matrix_for_each_first_vector(out: int) -> None:
    nu, weight = pool(out), draw(out, 7, seed=2)
    first, second = draw(3, FIRST), draw(4, SECOND, seed=1)
    matrices = nu.applied(weight, first)
    assert matrices.shape == (SECOND, 3, 7)
    for clip in range(3):
        wanted = nu(first[clip].expand(4, -1), second) @ weight
        torch.testing.assert_close(second @ matrices[:, clip], wanted)


def test_vectors_in_bfloat16_give_close_numbers() -> None:
    """Under autocast the LSTM hands over bfloat16, which a Fourier transform does not take."""
    pool = CompactBilinear(first_dim=5, second_dim=4, out_dim=50, seed=0)
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(3, 5, generator=generator), torch.randn(3, 4, generator=generator)
    low = pool(first.bfloat16(), second.bfloat16())
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, pool(first, second), atol=0.05, rtol=0.02)
