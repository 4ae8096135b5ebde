"""How well people describe clips: captions of theirs, each judged by the others of its clip.

What a system can hope for on a corpus: where people do not agree, none can agree with all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ctsan.evaluation.clip_statistics import ClipStatistic
from ctsan.evaluation.coco_metrics import Judgement, judge_captions


def judge_people(captions: Mapping[str, Sequence[str]], *, per_clip: int, java: Path | None) -> Judgement:
    """Judge the first captions of each clip as a system's would be.

    A person is judged by one caption fewer than a system, which makes the figures a little lower.

    Args:
        captions: of each clip; one that has a single caption is left out.
        per_clip: at most so many are judged, each by all others.
        java: what `find_java` found.
    """
    others: dict[str, list[str]] = {}
    said: dict[str, str] = {}
    firsts: list[int] = []  # of each clip, among all that are judged
    for clip, own in captions.items():
        if len(own) > 1:
            firsts.append(len(said))
            for number, caption in enumerate(own[:per_clip]):
                others[f"{clip} {number}"] = [*own[:number], *own[number + 1 :]]
                said[f"{clip} {number}"] = caption
    found = judge_captions(others, said, java=java)
    statistics = {
        metric: ClipStatistic(
            np.add.reduceat(statistic.rows, firsts, axis=0), statistic.of_sums
        )  # a row a clip
        for metric, statistic in found.statistics.items()
    }
    return found._replace(statistics=statistics)
