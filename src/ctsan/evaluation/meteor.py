"""METEOR 1.5 (Denkowski and Lavie, 2014) by the Java program in pycocoevalcap, started once for all captions.

The program returns counts per caption; the score is a function of their sums. pycocoevalcap's own class
queries the program once per caption and once more for the score, and hangs if an answer is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ctsan.evaluation.clip_statistics import Numbers
from ctsan.evaluation.java import JavaError, run_java
from ctsan.io.extras import extra

_SECONDS = 600  # loading the paraphrase table takes ten seconds on an idle machine
_SECONDS_PER_CAPTION = 0.2

_COUNTS = 23
_LENGTHS, _CHUNKS, _MATCHES = slice(0, 2), 20, slice(21, 23)

# The program's default parameters for English, tuned to human rankings.
_ALPHA, _BETA, _GAMMA, _DELTA = 0.85, 0.2, 0.6, 0.75
_STAGE_WEIGHTS = np.array([1.0, 0.6, 0.8, 0.6])  # exact words, stems, synonyms, paraphrases


def meteor_counts(captions: Sequence[tuple[str, Sequence[str]]], java: Path) -> Numbers:
    """METEOR's counts for each tokenised caption with its references, (captions, 23).

    Raises:
        JavaError: the program failed.
    """
    with extra("train", "Measuring captions"):
        from pycocoevalcap.meteor import meteor

    answers = run_java(
        java,
        [
            *("-Xmx2G", "-jar", meteor.METEOR_JAR, "-", "-", "-stdio", "-l", "en", "-norm"),
            *("-a", "data/paraphrase-en.gz"),  # its default lookup fails under a path with a space
        ],
        [_score_request(caption, references) for caption, references in captions],
        folder=Path(meteor.__file__).absolute().parent,
        seconds=_SECONDS + _SECONDS_PER_CAPTION * len(captions),
    )
    counts = [answer.split() for answer in answers]
    for (caption, _), numbers, answer in zip(captions, counts, answers, strict=True):
        if len(numbers) != _COUNTS:
            raise JavaError(f"METEOR cannot score the caption {caption!r}: {answer}. Leave its clip out.")
    rows = np.array(counts, dtype=np.float64).reshape(-1, _COUNTS)
    is_full_match = (rows[:, _MATCHES] == rows[:, _LENGTHS]).all(axis=1) & (rows[:, _CHUNKS] == 1)
    rows[is_full_match, _CHUNKS] = 0  # as in the program: a full match in one chunk has no fragmentation
    return rows


def meteor_of_sums(sums: Numbers) -> Numbers:
    """The score from counts (..., 23), or from their sums over captions.

    The 23 counts, where a pair is of caption and reference:
    - 0-1: lengths;
    - 2-3: function words;
    - 4-19: for each of four stages, the pair of matched content words and the pair of matched function words;
    - 20: chunks of contiguous matches;
    - 21-22: matched words.
    """
    lengths, function_words = sums[..., _LENGTHS], sums[..., 2:4]
    stages = sums[..., 4:20].reshape(*sums.shape[:-1], 4, 2, 2)  # (..., stage, content or function, side)
    chunks, matches = sums[..., _CHUNKS], sums[..., _MATCHES]
    matched = np.einsum("...skt,s,k->...t", stages, _STAGE_WEIGHTS, np.array([_DELTA, 1 - _DELTA]))
    weighted_lengths = _DELTA * (lengths - function_words) + (1 - _DELTA) * function_words
    precision, recall = np.moveaxis(_safe_ratio(matched, weighted_lengths), -1, 0)
    f_mean = _safe_ratio(precision * recall, _ALPHA * precision + (1 - _ALPHA) * recall)
    fragmentation = _safe_ratio(chunks, matches.mean(axis=-1))
    scores: Numbers = f_mean * (1 - _GAMMA * fragmentation**_BETA)
    return scores


def _score_request(caption: str, references: Sequence[str]) -> str:
    """A SCORE line for the program; `|||` separates sentences, so it is removed from them."""
    parts = (" ".join(part.replace("|||", "").split()) for part in (*references, caption))
    return " ||| ".join(("SCORE", *parts))


def _safe_ratio(numerator: Numbers, denominator: Numbers) -> Numbers:
    """Numerator over denominator; 0 where the denominator is 0."""
    ratios: Numbers = np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator != 0)
    return ratios
