"""Linear regression on mean features: own clips and, at less weight, those that others have captioned.

Worst of five seeds by `make margins`, and the bound:

- weights of many clips 2.60 times those of a few (> 2), and these .028 (> 0)
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ctsan.extensions.ridge import regress
from margins import Margins, Start

C, K = 12, 6


def test_others_teach_what_goes_with_what_and_not_how_often_it_is_said(
    start: Start, margins: Margins
) -> None:
    seen = torch.randn(2000, C, generator=torch.Generator().manual_seed(start.seed))
    said = (seen[:, :1] > 0).float().expand(-1, K).clone()
    is_own = torch.arange(2000) < 100
    said[~is_own, 1:] = 1.0  # others always say these
    said[is_own, 2:] = 0.0  # and here nobody does
    weight = regress(F.layer_norm(seen, (C,)), said, is_own, ridge=1000.0, external=0.1)
    margins.above("weight of a few clips", float(weight[1, 0]), 0)
    margins.above("weight of many clips / of a few", float(weight[0, 0] / weight[1, 0]), 2)
    assert weight[2:].abs().max() < 1e-6
