"""METEOR 1.5 (Denkowski and Lavie, 2014) by the program that pycocoevalcap brings, started once for all.

For a caption the program gives counts; those of many captions are added, and their sums make the score. The
class of pycocoevalcap asks the program for each caption by itself and for the score in the end, and waits for
ever where an answer does not come.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ctsan.evaluation.clip_statistics import Numbers
from ctsan.evaluation.java import JavaError, run_java

_SECONDS = 600  # most of it to read a table of paraphrases: ten on an idle machine
_SECONDS_PER_CAPTION = 0.2

_COUNTS = 23
_LENGTHS, _CHUNKS, _MATCHES = slice(0, 2), 20, slice(21, 23)

# The parameters for English that are tuned to people's rankings, the program's default.
_ALPHA, _BETA, _GAMMA, _DELTA = 0.85, 0.2, 0.6, 0.75
_STAGES = np.array([1.0, 0.6, 0.8, 0.6])  # weights of same words, stems, synonyms and paraphrases


def meteor_counts(captions: Sequence[tuple[str, Sequence[str]]], java: Path) -> Numbers:
    """What METEOR counts for each tokenised caption with its references, (captions, 23).

    Raises:
        JavaError: the program failed.
    """
    from pycocoevalcap.meteor import meteor

    answers = run_java(
        java,
        [
            *("-Xmx2G", "-jar", meteor.METEOR_JAR, "-", "-", "-stdio", "-l", "en", "-norm"),
            *("-a", "data/paraphrase-en.gz"),  # which it does not find by itself under a path with a space
        ],
        [_question(caption, references) for caption, references in captions],
        folder=Path(meteor.__file__).absolute().parent,
        seconds=_SECONDS + _SECONDS_PER_CAPTION * len(captions),
    )
    counts = [answer.split() for answer in answers]
    for (caption, _), numbers, answer in zip(captions, counts, answers, strict=True):
        if len(numbers) != _COUNTS:
            raise JavaError(f"METEOR cannot score the caption {caption!r}: {answer}. Leave its clip out.")
    rows = np.array(counts, dtype=np.float64).reshape(-1, _COUNTS)
    is_whole = (rows[:, _MATCHES] == rows[:, _LENGTHS]).all(axis=1) & (rows[:, _CHUNKS] == 1)
    rows[is_whole, _CHUNKS] = 0  # as the program does before it adds: one run that is all is not broken
    return rows


def meteor_of_sums(sums: Numbers) -> Numbers:
    """The score of counts (..., 23), or of their sums over captions.

    They are the lengths of caption and reference, how many of these words are function words, for each of
    four stages the matched content words of both and the matched function words of both, the number of runs
    of matches, and the matched words of both.
    """
    lengths, functions = sums[..., _LENGTHS], sums[..., 2:4]
    stages = sums[..., 4:20].reshape(*sums.shape[:-1], 4, 2, 2)  # (..., stage, content or function, side)
    chunks, matches = sums[..., _CHUNKS], sums[..., _MATCHES]
    matched = np.einsum("...skt,s,k->...t", stages, _STAGES, np.array([_DELTA, 1 - _DELTA]))
    weighted = _DELTA * (lengths - functions) + (1 - _DELTA) * functions
    precision, recall = np.moveaxis(_over(matched, weighted), -1, 0)
    harmonic = _over(precision * recall, _ALPHA * precision + (1 - _ALPHA) * recall)
    broken = _over(chunks, matches.mean(axis=-1))
    scores: Numbers = harmonic * (1 - _GAMMA * broken**_BETA)
    return scores


def _question(caption: str, references: Sequence[str]) -> str:
    """A line for the program, in which `|||` parts sentences and so is in none of them."""
    parts = (" ".join(part.replace("|||", "").split()) for part in (*references, caption))
    return " ||| ".join(("SCORE", *parts))


def _over(part: Numbers, whole: Numbers) -> Numbers:
    """A share, 0 of nothing."""
    shares: Numbers = np.divide(part, whole, out=np.zeros_like(part), where=whole != 0)
    return shares
