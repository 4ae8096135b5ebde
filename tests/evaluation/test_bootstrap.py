"""Tallies, intervals and comparisons, worked out by hand or by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from ctsan.evaluation.bootstrap import compare, compare_over_seeds, interval, over_seeds
from ctsan.evaluation.clip_statistics import mean, mean_of, ratio
from ctsan.evaluation.items import blank_statistics, choice_statistics, query_statistics


def test_a_ratio_is_of_sums_and_not_a_mean_of_ratios() -> None:
    assert ratio([1, 3], [1, 9]).value == pytest.approx(0.4)
    assert mean([1, 3, 8]).value == 4
    assert ratio([0], [0]).value == 0


def test_the_interval_of_two_clips_follows_from_the_four_draws() -> None:
    """Means of 0 and 1 are 0, 1/2 (twice) and 1, a quarter of the time each: both ends are drawn."""
    assert interval(mean([0, 1])) == (0, 1)


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    values = np.random.default_rng(5).normal(3, 2, 400)
    low, high = interval(mean(values))
    error = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - error, values.mean() + error), abs=0.03)
    assert interval(mean(values)) == (low, high)  # and the same every time


def test_clips_that_are_alike_leave_no_doubt() -> None:
    assert interval(mean([0.5] * 7)) == pytest.approx((0.5, 0.5))


def test_a_small_difference_in_every_clip_is_larger_than_the_noise_and_unpaired_it_would_not_be() -> None:
    hard = np.random.default_rng(1).normal(0, 1, 50)
    found = compare(mean(hard + 0.1), mean(hard))
    assert found.difference == pytest.approx(0.1)
    assert found.interval == pytest.approx((0.1, 0.1))
    assert found.verdict == "larger"
    assert compare(mean(hard), mean(hard + 0.1)).verdict == "smaller"
    assert compare(mean(hard + 0.1), mean(hard[::-1])).verdict == "within noise"
    assert compare(mean(hard), mean(hard)).verdict == "within noise"


def test_seeds_that_differ_widen_the_interval_of_a_difference_that_every_clip_agrees_on() -> None:
    clips = np.random.default_rng(1).normal(0, 1, 50)
    theirs = [mean(clips)] * 3
    apart = [mean(clips + shift) for shift in (1.0, 1.0, -0.8)]
    found = compare_over_seeds(apart, theirs)
    assert found.difference == pytest.approx(0.4)
    assert found.interval == pytest.approx((-0.8, 1.0))  # thrice the same seed is one draw of 27, or more
    assert found.verdict == "within noise"
    assert compare(mean_of(apart), mean_of(theirs)).interval == pytest.approx((0.4, 0.4))
    alike = [mean(clips + shift) for shift in (0.3, 0.4, 0.5)]
    assert compare_over_seeds(alike, theirs).interval == pytest.approx((0.3, 0.5))
    assert compare_over_seeds(alike, theirs).verdict == "larger"
    assert compare_over_seeds(theirs, alike).verdict == "smaller"


def test_seeds_are_drawn_in_pairs_if_there_are_as_many() -> None:
    clips = np.random.default_rng(1).normal(0, 1, 50)
    ours = [mean(clips + shift) for shift in (1.1, 2.1, 3.1)]
    theirs = [mean(clips + shift) for shift in (1.0, 2.0, 3.0)]
    assert compare_over_seeds(ours, theirs).interval == pytest.approx((0.1, 0.1))
    one = compare_over_seeds(ours[:1], theirs)
    assert one.difference == pytest.approx(-0.9)
    assert one.interval == pytest.approx((-1.9, 0.1))


def test_pairs_need_as_many_clips() -> None:
    with pytest.raises(ValueError, match="2 and 3 clips cannot be paired"):
        compare(mean([1, 2]), mean([1, 2, 3]))


def test_the_mean_of_several_systems_is_itself_a_metric() -> None:
    both = mean_of([ratio([1, 3], [1, 9]), mean([0, 1])])
    assert both.value == pytest.approx((0.4 + 0.5) / 2)
    assert compare(both, both).difference == 0


def test_three_seeds_have_an_interval_by_student() -> None:
    """4.3027 is the 97.5 % quantile of two degrees of freedom; 1, 2 and 3 deviate by 1."""
    found = over_seeds([1.0, 2.0, 3.0])
    assert found == pytest.approx((2, 4.302653 / 3**0.5), rel=1e-6)
    assert over_seeds([0.3]) == (0.3, None)


def test_answers_to_items_are_counted_by_clip() -> None:
    blanks = {
        "a": [{"answer": "man", "right": "Man"}, {"answer": "dog", "right": "cat"}],
        "b": [{"answer": "car", "right": "car"}],
    }
    accuracy = blank_statistics(blanks)["accuracy"]
    assert accuracy.rows.tolist() == [[1, 2], [1, 1]]
    assert accuracy.value == pytest.approx(2 / 3)
    choices = {"a": [{"choice": 1, "right": 1}], "b": [{"choice": 0, "right": 3}]}
    assert choice_statistics(choices)["accuracy"].value == 0.5
    queries = query_statistics({"a": [{"rank": 1}, {"rank": 4}], "b": [{"rank": 20}], "c": [{"rank": 8}]})
    assert queries["R@5"].value == 0.5
    assert queries["median rank"].value == 6
