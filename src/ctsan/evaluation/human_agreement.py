"""Human agreement: score each human caption against the other captions of its clip.

This bounds what a model can reach on a corpus: where people disagree, no caption agrees with all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ctsan.evaluation.clip_statistics import ClipStatistic
from ctsan.evaluation.coco_metrics import CaptionScores, score_captions


def score_human_captions(
    captions: Mapping[str, Sequence[str]], *, per_clip: int, java: Path | None
) -> CaptionScores:
    """Score the first captions of each clip as if a model had written them.

    A human caption has one reference fewer than a model's, which lowers its scores a little.

    Args:
        captions: by clip; clips with a single caption are left out.
        per_clip: the most captions of a clip to score, each against all others.
        java: the result of `find_java`.
    """
    references: dict[str, list[str]] = {}
    scored: dict[str, str] = {}
    first_rows: list[int] = []  # the first row of each clip among all scored captions
    for clip, clip_captions in captions.items():
        if len(clip_captions) > 1:
            first_rows.append(len(scored))
            for number, caption in enumerate(clip_captions[:per_clip]):
                references[f"{clip} {number}"] = [*clip_captions[:number], *clip_captions[number + 1 :]]
                scored[f"{clip} {number}"] = caption
    scores = score_captions(references, scored, java=java)
    statistics = {  # one row per clip, not per caption
        metric: ClipStatistic(np.add.reduceat(statistic.rows, first_rows, axis=0), statistic.of_sums)
        for metric, statistic in scores.statistics.items()
    }
    return scores._replace(statistics=statistics)
