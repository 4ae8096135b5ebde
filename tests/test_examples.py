"""The examples run, and do what they say."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_a_foreign_model_learns_with_the_detector_inside() -> None:
    history = runpy.run_path(str(EXAMPLES / "foreign_model.py"))["main"]()
    assert history[-1] < 0.3 * history[0]
