"""How much a model's answers depend on its concept words, measured by replacing them.

Only the concept words change. The rest of the clip encoding, in particular the state s_N, is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ctsan.data.corpus import Clip
from ctsan.evaluation.bootstrap import Comparison, Interval, compare, interval
from ctsan.evaluation.clip_statistics import ClipStatistic, ratio
from ctsan.model.clip_encoder import ClipEncoder, ClipEncoding
from ctsan.tasks.registry import task_spec
from ctsan.tasks.spec import ReportInputs
from ctsan.tasks.task import Task
from ctsan.text.concepts import Concepts

WordSource = Literal["own", "another", "random", "none", "oracle"]
SOURCES: tuple[WordSource, ...] = get_args(WordSource)
QUICK_SOURCES: tuple[WordSource, ...] = ("own", "another", "none")  # after training, and in tables
SOURCE_LABELS: Mapping[WordSource, str] = {
    "own": "the clip's own",
    "another": "another clip's",
    "random": "random",
    "none": "none",
    "oracle": "of its captions (oracle)",
}
RELIANCE_FILE = "reliance.json"  # in a run folder, measured on validation clips

Answers = Mapping[str, Any]  # by clip id, as in `Measured`

_SEED = 0  # for the permutation and the random words, the same in all runs


@dataclass(frozen=True, slots=True)
class SourceScore:
    """A model's score with concept words from one source.

    Attributes:
        difference: to the score with the clips' own words, by paired bootstrap over clips; None for the
            source "own".
        changed: share of answers that differ from those with the clips' own words.
    """

    value: float
    interval: Interval
    difference: Comparison | None
    changed: float


@dataclass(frozen=True, slots=True)
class Reliance:
    """Scores of one model by source of its concept words, on the task's primary metric."""

    task: str
    metric: str
    clips: int
    answers: int  # captions, blanks, choices or queries
    sources: dict[WordSource, SourceScore]

    def to_json(self) -> dict[str, Any]:
        sources: dict[str, dict[str, Any]] = {}
        for source, score in self.sources.items():
            sources[source] = {self.metric: score.value, "interval": score.interval}
            if score.difference is not None:
                sources[source] |= {
                    "difference": score.difference.difference,
                    "interval of difference": score.difference.interval,
                    "changed": score.changed,
                }
        return {"metric": self.metric, "clips": self.clips, "answers": self.answers, "sources": sources}


def measure_reliance(
    name: str,
    task: Task[Any],
    *,
    sources: Sequence[WordSource] = SOURCES,
    java: Path | None = None,
) -> Reliance | None:
    """Score a model with concept words from each source; None if there is nothing to evaluate.

    Args:
        task: with a model for which `reads_concepts` is true.
        java: the result of `find_java`. Without Java, captions are scored on our own tokens, as in training.
    """
    answers = answers_by_source(task, sources)
    unchanged = answers["own"]
    if not unchanged:
        return None
    metric = task_spec(name).primary_metric
    statistics = _statistics(name, answers, task.clips.validation, java=java)
    scores = {}
    for source, statistic in statistics.items():
        changed = changed_share(name, unchanged, answers[source])
        scores[source] = SourceScore(
            value=statistic[metric].value,
            interval=interval(statistic[metric]),
            difference=None if source == "own" else compare(statistic[metric], statistics["own"][metric]),
            changed=changed.value,
        )
    num_answers = int(changed_share(name, unchanged, unchanged).rows[:, 1].sum())
    return Reliance(name, metric, len(unchanged), num_answers, scores)


@torch.inference_mode()
def answers_by_source(task: Task[Any], sources: Sequence[WordSource]) -> dict[WordSource, Answers]:
    """A model's answers with concept words from each source, the clips' own first.

    Clips are encoded once. The source "another" is omitted with fewer than two clips, "oracle" without
    captions.
    """
    encoder = task.model.clip_encoder
    assert isinstance(encoder, ClipEncoder)  # implied by `reads_concepts`
    encoding = task.clips.encoded(encoder)
    unchanged = task.measure(encoding).answers
    answers: dict[WordSource, Answers] = {"own": unchanged}
    measured = [(row, clip) for row, clip in enumerate(task.clips.validation) if clip.id in unchanged]
    rows, clips = [row for row, _ in measured], [clip for _, clip in measured]
    for source in sources if clips else ():
        if (
            source == "own"
            or (replaced := _replaced(source, encoding, encoder, task.clips.words.concepts, rows, clips))
            is None
        ):
            continue
        answers[source] = task.measure(replaced).answers
    return answers


def _statistics(
    name: str, answers: Mapping[WordSource, Answers], clips: Sequence[Clip], *, java: Path | None
) -> dict[WordSource, dict[str, ClipStatistic]]:
    """Statistics of a task's answers, by source and by metric."""
    spec = task_spec(name)
    if spec.compare is not None:
        compared = spec.compare(dict(answers.items()), clips, java)
        return {source: {**compared[source]} for source in answers}
    return {
        source: spec.report(ReportInputs(source_answers, clips, java)).statistics
        for source, source_answers in answers.items()
    }


def changed_share(name: str, unchanged: Answers, replaced: Answers) -> ClipStatistic:
    """Share of answers that differ, per clip. Answers are captions, filled words, choices or top-1 clips."""
    split = task_spec(name).split_answers
    pairs = [(split(unchanged[clip]), split(replaced[clip])) for clip in unchanged]
    changed = [sum(before != after for before, after in zip(*pair, strict=True)) for pair in pairs]
    return ratio(changed, [len(before) for before, _ in pairs])


def permute_clips(clips: Sequence[Clip]) -> list[int]:
    """A permutation that maps each clip to another clip, from a different source where possible.

    Clips are shuffled, grouped by source with the largest source first, and cyclically shifted by the size of
    the largest. Some clips get one of their own source only if the largest holds more than half of all clips.
    """
    order = np.random.default_rng(_SEED).permutation(len(clips)).tolist()
    sources = [clip.source or clip.id for clip in clips]
    sizes = Counter(sources[place] for place in order)
    met = {
        source: number for number, source in enumerate(sizes)
    }  # sources, in order of first occurrence after the shuffle
    order.sort(key=lambda place: (-sizes[sources[place]], met[sources[place]]))
    shift = max(sizes.values()) % len(clips) or 1
    permutation = [0] * len(clips)
    for position, place in enumerate(order):
        permutation[place] = order[(position + shift) % len(clips)]
    return permutation


def oracle_words(
    concepts: Concepts,
    captions: Sequence[str],
    *,
    num_words: int,
    prior: Tensor | None = None,
) -> list[int]:
    """The candidates used by most captions of a clip. Ties go to the word that is rarer in training.

    Args:
        prior: w q, (V,), of a model that ranks by p - w q. Candidates are then ranked by p* - w q, where p*
            is the share of captions with the word, and each lemma occurs once.
    """
    used = Counter(word for caption in captions for word in concepts.reference([caption]))
    if prior is None:
        ordered = sorted(used, key=lambda word: (-used[word], concepts.candidates[word].count, word))
        return ordered[:num_words]
    first: dict[int, int] = {}  # highest-ranked word of each lemma
    least = prior.tolist()
    for word in sorted(used, key=lambda word: (least[word] - used[word] / len(captions), word)):
        first.setdefault(concepts.lemma_ids[word], word)
    return list(first.values())[:num_words]


def _replaced(
    source: WordSource,
    encoding: ClipEncoding,
    encoder: ClipEncoder,
    concepts: Concepts,
    rows: Sequence[int],
    clips: Sequence[Clip],
) -> ClipEncoding | None:
    """The encoding with concept words of the measured clips replaced; None if the source has no words.

    Args:
        rows: row indices of the measured clips.
    """
    words, confidences = encoding.concept_words.cpu()[rows], encoding.confidences.cpu()[rows]  # (n, K)
    num_words = words.shape[1]
    match source:
        case "own":
            return encoding
        case "another":
            if len(clips) < 2:
                return None
            permutation = permute_clips(clips)
            words, confidences = words[permutation], confidences[permutation]
        case "random":
            chance = torch.rand(len(clips), len(concepts), generator=torch.Generator().manual_seed(_SEED))
            words = chance.argsort(dim=1)[:, :num_words]
        case "none":
            confidences = torch.zeros_like(confidences)
        case "oracle":
            if not any(clip.captions for clip in clips):
                return None
            words, confidences = torch.zeros_like(words), torch.zeros_like(confidences)
            prior = encoder.prior_weight * encoder.frequencies if encoder.prior_weight > 0 else None
            for row, clip in enumerate(clips):
                oracle = oracle_words(concepts, clip.captions, num_words=num_words, prior=prior)
                words[row, : len(oracle)] = torch.tensor(oracle, dtype=words.dtype)
                confidences[row, : len(oracle)] = 1
    place = torch.tensor(rows, device=encoding.concepts.device)

    def with_rows(tensor: Tensor, part: Tensor) -> Tensor:
        return tensor.index_copy(0, place, part.to(tensor))

    return encoder.replace_concepts(
        encoding, with_rows(encoding.concept_words, words), with_rows(encoding.confidences, confidences)
    )
