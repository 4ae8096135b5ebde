"""The examples run, and do what they say.

Worst of five seeds by `make margins`, and the bound:

- loss left .088 (< .3)
"""

from __future__ import annotations

import runpy
from pathlib import Path

from margins import Margins, Start

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_a_foreign_model_learns_with_the_detector_inside(start: Start, margins: Margins) -> None:
    history = runpy.run_path(str(EXAMPLES / "foreign_model.py"))["main"](start.seed)
    margins.below("loss left", history[-1] / history[0], 0.3)
