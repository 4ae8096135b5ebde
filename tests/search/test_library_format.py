"""Vectors of libraries that older versions made."""

from __future__ import annotations

import numpy as np

from ctsan.search.library_format import widened


def test_old_columns_change_no_inner_product() -> None:
    rng = np.random.default_rng(0)
    old, query = rng.normal(size=(5, 20)).astype(np.float32), rng.normal(size=(1, 12)).astype(np.float32)
    [wide] = widened(query, 20)
    np.testing.assert_array_equal(old @ wide, old[:, :12] @ query[0])
    assert widened(query, 12).shape == query.shape
