"""Attention on a region, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ctsan.evaluation.traces import attention_on_region

BORDERS = np.array([0.0, 0.5, 1.0])


def test_attention_in_one_cell_lies_on_the_part_of_it_that_a_box_covers() -> None:
    attention = np.array([[0.0, 1.0], [0.0, 0.0]])
    found = attention_on_region(attention, BORDERS, BORDERS, [(0.5, 0.0, 1.0, 0.2)])
    assert found == pytest.approx((0.4, 0.1, False))  # the middle of the cell is at 0.25, 0.75


def test_a_box_that_is_the_picture_holds_everything() -> None:
    attention = np.full((2, 2), 0.25)
    assert attention_on_region(attention, BORDERS, BORDERS, [(0, 0, 1, 1)]) == (1.0, 1.0, True)


def test_boxes_add_up_and_cells_may_differ_in_size() -> None:
    attention = np.array([[0.2, 0.8]])
    found = attention_on_region(
        attention, np.array([0.0, 1.0]), np.array([0.0, 0.25, 1.0]), [(0, 0, 0.25, 1), (0.25, 0, 0.625, 1)]
    )
    assert found.mass == pytest.approx(0.2 + 0.8 * 0.5)
    assert found.by_chance == pytest.approx((1 + 0.5) / 2)


def test_no_box_holds_nothing() -> None:
    assert attention_on_region(np.full((2, 2), 0.25), BORDERS, BORDERS, []) == (0.0, 0.0, False)
