"""The metrics that papers report: BLEU-1..4, METEOR, ROUGE-L and CIDEr by pycocoevalcap over its PTB tokens.

pycocoevalcap counts every n-gram, subsequence and match. This module keeps the counts per clip, so that
`bootstrap` can compute intervals and comparisons (see `clip_statistics`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from ctsan.evaluation.captions import Sentences, cider_scores
from ctsan.evaluation.clip_statistics import ClipStatistic, Numbers, mean
from ctsan.evaluation.java import HOW_TO_GET_JAVA, JavaError
from ctsan.evaluation.meteor import meteor_counts, meteor_of_sums
from ctsan.evaluation.ptb import ptb_tokens
from ctsan.io.extras import extra
from ctsan.text.tokens import tokenize

NO_JAVA = (
    "Java was not found: METEOR is left out, and the other metrics use a Python tokeniser, so that they "
    f"compare only roughly with published ones. {HOW_TO_GET_JAVA}"
)

Tokeniser = Literal["ptb", "python"]

_ORDERS = 4  # BLEU's n-gram orders
_TINY, _SMALL = 1e-15, 1e-9  # the constants of pycocoevalcap that avoid a division by zero


class CaptionScores(NamedTuple):
    """The scores of one system's captions, clips in their order."""

    statistics: dict[str, ClipStatistic]  # by metric
    tokeniser: Tokeniser
    notes: tuple[str, ...]  # how the scores differ from the official ones, and how to fix it


def score_captions(
    references: Mapping[str, Sequence[str]], captions: Mapping[str, str], *, java: Path | None
) -> CaptionScores:
    """Score one system's captions, one per clip. See `score_systems`."""
    return score_systems(references, {"": captions}, java=java)[""]


def score_systems(
    references: Mapping[str, Sequence[str]],
    systems: Mapping[str, Mapping[str, str]],
    *,
    java: Path | None,
    meteor: bool = True,
) -> dict[str, CaptionScores]:
    """Score the captions of several systems; each Java program starts only once.

    Args:
        references: at least one per captioned clip, by clip.
        systems: captions by clip, by system.
        java: the result of `find_java`.
        meteor: False leaves out METEOR, which takes most of the time.
    """
    sentences = [sentence for clip_references in references.values() for sentence in clip_references]
    sentences += [caption for captions in systems.values() for caption in captions.values()]
    tokens, tokeniser, notes = _tokens(sentences, java)
    remaining = iter(tokens)
    reference_tokens = {
        clip: list(islice(remaining, len(clip_references))) for clip, clip_references in references.items()
    }
    system_tokens = {
        system: {clip: [next(remaining)] for clip in captions} for system, captions in systems.items()
    }
    counts: Numbers | None = None
    if meteor and java and tokeniser == "ptb":
        pairs = [
            (caption, reference_tokens[clip])
            for captions in system_tokens.values()
            for clip, [caption] in captions.items()
        ]
        try:
            counts = meteor_counts(pairs, java)
        except JavaError as error:
            notes.append(f"METEOR is left out: {error}")
    scores, start = {}, 0
    for system, caption_tokens in system_tokens.items():
        system_counts = None if counts is None else counts[start : start + len(caption_tokens)]
        system_references = {clip: reference_tokens[clip] for clip in caption_tokens}
        statistics = _caption_statistics(system_references, caption_tokens, system_counts)
        scores[system] = CaptionScores(statistics, tokeniser, tuple(notes))
        start += len(caption_tokens)
    return scores


def _tokens(sentences: Sequence[str], java: Path | None) -> tuple[list[str], Tokeniser, list[str]]:
    """The tokens of each sentence, the tokeniser, and a note if it is not the PTB tokeniser."""
    note = NO_JAVA
    if java:
        try:
            return ptb_tokens(sentences, java), "ptb", []
        except JavaError as error:
            note = f"METEOR is left out, and the tokeniser is the Python one: {error}"
    return [" ".join(tokenize(sentence)) for sentence in sentences], "python", [note]


def _caption_statistics(
    references: Sentences, captions: Sentences, meteor: Numbers | None
) -> dict[str, ClipStatistic]:
    with extra("train", "Measuring captions"):
        from pycocoevalcap.rouge.rouge import Rouge

    counts = _bleu_counts(references, captions)
    rouge = Rouge()
    statistics = {"CIDEr": mean(cider_scores(references, captions))}
    statistics |= {
        f"BLEU-{order}": ClipStatistic(counts, partial(_bleu_of_sums, order))
        for order in range(1, _ORDERS + 1)
    }
    if meteor is not None:
        statistics["METEOR"] = ClipStatistic(meteor, meteor_of_sums)
    rouge_scores = [rouge.calc_score(caption, references[clip]) for clip, caption in captions.items()]
    return statistics | {"ROUGE-L": mean(rouge_scores)}


def _bleu_counts(references: Sentences, captions: Sentences) -> Numbers:
    """BLEU's counts of each clip, (clips, 10).

    The columns are the matched n-grams of orders 1 to 4, all n-grams of orders 1 to 4, the length of the
    caption and the length of the closest reference.
    """
    with extra("train", "Measuring captions"):
        from pycocoevalcap.bleu.bleu_scorer import BleuScorer

    scorer = BleuScorer(n=_ORDERS)
    for clip, [caption] in captions.items():
        scorer.cook_append(caption, references[clip])
    rows = [
        (
            *counts["correct"],
            *counts["guess"],
            counts["testlen"],
            _closest_length(counts["reflen"], counts["testlen"]),
        )
        for counts in scorer.ctest
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, 2 * _ORDERS + 2)


def _closest_length(lengths: Sequence[int], target: int) -> int:
    """The length closest to the target; the shorter one of a tie."""
    return min(lengths, key=lambda length: (abs(length - target), length))


def _bleu_of_sums(order: int, sums: Numbers) -> Numbers:
    matched, total = sums[..., :order], sums[..., _ORDERS : _ORDERS + order]
    geometric_mean = np.prod((matched + _TINY) / (total + _SMALL), axis=-1) ** (1 / order)
    length_ratio = (sums[..., -2] + _TINY) / (sums[..., -1] + _SMALL)
    scores: Numbers = geometric_mean * np.exp(np.minimum(0, 1 - 1 / length_ratio))  # brevity penalty
    return scores
