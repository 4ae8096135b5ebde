"""The ridge regression against least squares, and which words count, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ctsan.evaluation.linear_probe import Matrix, RidgeRegression, precision_at_top, precision_by_rise

PENALTY = 0.7


def made(clips: int, channels: int) -> tuple[Matrix, Matrix, Matrix]:
    """Features and targets to learn from, and features of others; channels differ in mean and spread."""
    random = np.random.default_rng(0)
    x, others = (random.normal(3, 1, (n, channels)) * np.linspace(0.1, 10, channels) for n in (clips, 5))
    y = random.normal(2, 1, (clips, 4))
    return x.astype(np.float32), y.astype(np.float32), others.astype(np.float32)


@pytest.mark.parametrize(("clips", "channels"), [(30, 6), (6, 30), (12, 12)])
def test_ridge_regression_is_least_squares_with_a_row_for_each_weight(clips: int, channels: int) -> None:
    x, y, others = made(clips, channels)
    inputs, asked = ((some - x.mean(axis=0)) / x.std(axis=0) for some in (x, others))
    penalised = np.concatenate([inputs, np.sqrt(PENALTY * channels) * np.eye(channels)])
    targets = np.concatenate([y - y.mean(axis=0), np.zeros((channels, y.shape[1]))])
    weights, *_ = np.linalg.lstsq(penalised, targets)
    predicted = RidgeRegression(x, y).predict(others, penalty=PENALTY)
    np.testing.assert_allclose(predicted, asked @ weights + y.mean(axis=0), atol=1e-4)


def test_without_a_penalty_training_clips_are_met_and_with_a_high_one_the_mean_is_all() -> None:
    x, y, others = made(6, 30)
    regression = RidgeRegression(x, y)
    np.testing.assert_allclose(regression.predict(x, penalty=1e-9), y, atol=1e-3)
    np.testing.assert_allclose(regression.predict(others, penalty=1e9), [y.mean(axis=0)] * 5, atol=1e-4)


@pytest.mark.parametrize("clips", [40, 8])
def test_a_penalty_means_the_same_for_a_network_that_says_everything_twice(clips: int) -> None:
    x, y, others = made(clips, 10)
    once = RidgeRegression(x, y).predict(others, penalty=PENALTY)
    twice = RidgeRegression(np.tile(x, 2), y).predict(np.tile(others, 2), penalty=PENALTY)
    np.testing.assert_allclose(once, twice, atol=1e-4)


def test_the_surest_words_are_not_those_that_rise_furthest() -> None:
    scores = np.array([[0.9, 0.3, 0.6, 0.0], [0.8, 0.1, 0.7, 0.1]], dtype=np.float32)
    frequency = np.array([0.9, 0.1, 0.5, 0.0], dtype=np.float32)
    truth = np.array([[1, 0, 1, 0], [1, 0, 1, 1]], dtype=np.float32)
    # The first clip's words rise by 0, .2, .1 and 0, the second's by -.1, 0, .2 and .1.
    assert precision_at_top(scores, truth, top=1).tolist() == [1, 1]
    assert precision_by_rise(scores, frequency, truth, top=1).tolist() == [0, 1]
    assert precision_by_rise(scores, frequency, truth, top=2).tolist() == [0.5, 1]
