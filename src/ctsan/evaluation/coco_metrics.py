"""The figures that papers print: BLEU-1..4, METEOR, ROUGE-L and CIDEr by pycocoevalcap over its PTB tokens.

Every n-gram, subsequence and match is counted by pycocoevalcap itself; here its counts are added up, so that
intervals and comparisons can be had too (see `statistic`).
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
from ctsan.text.tokens import tokenize

NO_JAVA = (
    "Java was not found: METEOR is left out, and the other metrics are taken over tokens that are made in "
    f"Python, so that they compare only roughly with published ones. {HOW_TO_GET_JAVA}"
)

Tokeniser = Literal["ptb", "python"]

_ORDERS = 4  # of BLEU's n-grams
_TINY, _SMALL = 1e-15, 1e-9  # by which pycocoevalcap keeps from dividing by nothing


class Judgement(NamedTuple):
    """Of one system's captions, clips in their order."""

    statistics: dict[str, ClipStatistic]  # by metric
    tokeniser: Tokeniser
    notes: tuple[str, ...]  # what differs from the official figures, and how to mend it


def judge_captions(
    references: Mapping[str, Sequence[str]], captions: Mapping[str, str], *, java: Path | None
) -> Judgement:
    """Judge one system's captions, one a clip. See `judge_systems`."""
    return judge_systems(references, {"": captions}, java=java)[""]


def judge_systems(
    references: Mapping[str, Sequence[str]],
    systems: Mapping[str, Mapping[str, str]],
    *,
    java: Path | None,
    meteor: bool = True,
) -> dict[str, Judgement]:
    """Judge the captions of several systems at once: each of the Java programs starts only once.

    Args:
        references: of each captioned clip, at least one.
        systems: captions by clip, by system.
        java: what `find_java` found.
        meteor: False leaves METEOR out, which takes most of the time.
    """
    sentences = [sentence for own in references.values() for sentence in own]
    sentences += [caption for captions in systems.values() for caption in captions.values()]
    tokens, tokeniser, notes = _tokens(sentences, java)
    rest = iter(tokens)
    truth = {clip: list(islice(rest, len(own))) for clip, own in references.items()}
    said = {name: {clip: [next(rest)] for clip in captions} for name, captions in systems.items()}
    counts: Numbers | None = None
    if meteor and java and tokeniser == "ptb":
        asked = [(caption, truth[clip]) for own in said.values() for clip, [caption] in own.items()]
        try:
            counts = meteor_counts(asked, java)
        except JavaError as error:
            notes.append(f"METEOR is left out: {error}")
    judgements, start = {}, 0
    for name, own in said.items():
        matches = None if counts is None else counts[start : start + len(own)]
        statistics = _tallies({clip: truth[clip] for clip in own}, own, matches)
        judgements[name] = Judgement(statistics, tokeniser, tuple(notes))
        start += len(own)
    return judgements


def _tokens(sentences: Sequence[str], java: Path | None) -> tuple[list[str], Tokeniser, list[str]]:
    """The tokens of each sentence, what made them, and a note where it should have been another."""
    note = NO_JAVA
    if java:
        try:
            return ptb_tokens(sentences, java), "ptb", []
        except JavaError as error:
            note = f"METEOR is left out, and tokens are made in Python: {error}"
    return [" ".join(tokenize(sentence)) for sentence in sentences], "python", [note]


def _tallies(truth: Sentences, said: Sentences, meteor: Numbers | None) -> dict[str, ClipStatistic]:
    from pycocoevalcap.rouge.rouge import Rouge

    counts = _bleu_counts(truth, said)
    rouge = Rouge()
    statistics = {"CIDEr": mean(cider_scores(truth, said))}
    statistics |= {
        f"BLEU-{order}": ClipStatistic(counts, partial(_bleu_of_sums, order))
        for order in range(1, _ORDERS + 1)
    }
    if meteor is not None:
        statistics["METEOR"] = ClipStatistic(meteor, meteor_of_sums)
    return statistics | {"ROUGE-L": mean([rouge.calc_score(own, truth[clip]) for clip, own in said.items()])}


def _bleu_counts(truth: Sentences, said: Sentences) -> Numbers:
    """Of each clip: right n-grams of one to four words, all of them, words said, and words of the
    closest reference."""
    from pycocoevalcap.bleu.bleu_scorer import BleuScorer

    scorer = BleuScorer(n=_ORDERS)
    for clip, [caption] in said.items():
        scorer.cook_append(caption, truth[clip])
    rows = [
        (*found["correct"], *found["guess"], found["testlen"], _closest(found["reflen"], found["testlen"]))
        for found in scorer.ctest
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, 2 * _ORDERS + 2)


def _closest(lengths: Sequence[int], own: int) -> int:
    """Of several as close the shortest."""
    return min(lengths, key=lambda length: (abs(length - own), length))


def _bleu_of_sums(order: int, sums: Numbers) -> Numbers:
    right, all_ = sums[..., :order], sums[..., _ORDERS : _ORDERS + order]
    means = np.prod((right + _TINY) / (all_ + _SMALL), axis=-1) ** (1 / order)
    ratio = (sums[..., -2] + _TINY) / (sums[..., -1] + _SMALL)
    scores: Numbers = means * np.exp(np.minimum(0, 1 - 1 / ratio))
    return scores
