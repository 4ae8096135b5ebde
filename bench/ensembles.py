"""Who should say how well a sentence suits a clip: joint embeddings, runs of `rank` and `choose`, or all?

    python bench/ensembles.py --corpus CLIPS --features FEATURES --model PACK
    python bench/ensembles.py --corpus CLIPS MORE --features FEATURES MORE-FEATURES --model PACK

Captions of the validation clips are the queries, and all clips of the corpora are ranked for each. A score is
a mixture of three means of standardised scores: of the runs of `embed`, of `rank` and of `choose`. The last
column is the MRR less that of the joint embeddings alone, with a 95 % bootstrap interval over clips: a rule
whose interval holds 0 cannot be told from them. docs/search.md has the table by which `answering` in
trained_run.py lets joint embeddings decide alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate
from torch import Tensor

from ctsan.data.corpus import Clip
from ctsan.data.reading import read_corpus
from ctsan.evaluation.bootstrap import compare
from ctsan.evaluation.clip_statistics import ClipStatistic
from ctsan.evaluation.retrieval import rank_statistics, ranks
from ctsan.runs.trained_run import TrainedRun, load_runs
from ctsan.tasks.loaded_model import joined
from ctsan.tasks.scoring import score_all
from ctsan.video.store import FeatureStore, Maps

_CLIPS_AT_ONCE = 32
_RULES = {  # shares of embed, rank and choose
    "joint embeddings alone (every command now)": (1.0, 0.0, 0.0),
    "rank alone": (0.0, 1.0, 0.0),
    "choose alone": (0.0, 0.0, 1.0),
    "a third each (search before)": (1 / 3, 1 / 3, 1 / 3),
    "2/3 embed + 1/3 rank (ctsan rank before)": (2 / 3, 1 / 3, 0.0),
    "0.8 embed + 0.2 rank": (0.8, 0.2, 0.0),
    "0.9 embed + 0.1 rank": (0.9, 0.1, 0.0),
    "0.8 embed + 0.2 choose": (0.8, 0.0, 0.2),
    "0.9 embed + 0.1 choose": (0.9, 0.0, 0.1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--corpus", type=Path, nargs="+", required=True)
    parser.add_argument("--features", type=Path, nargs="+", required=True, help="one folder a corpus")
    parser.add_argument(
        "--model",
        type=Path,
        action="append",
        required=True,
        help="runs, or a pack, of embed, rank and choose",
    )
    parser.add_argument("--split", default="val")
    parser.add_argument("--queries", type=int, default=8, help="captions of each clip that are asked")
    options = parser.parse_args()
    torch.set_num_threads(1)
    clips: list[tuple[Clip, Maps]] = []
    for place, folder in zip(options.corpus, options.features, strict=True):
        store = FeatureStore(folder)
        found = [clip for clip in read_corpus(place) if clip.split == options.split and clip.id in store]
        clips += [(clip, store[clip.id].maps) for clip in found]
    asked = [
        (caption, place)
        for place, (clip, _) in enumerate(clips)
        for caption in clip.captions[: options.queries]
    ]
    runs = load_runs(options.model)
    by_task = {task: _mean_scores(runs, task, clips, asked) for task in ("embed", "rank", "choose")}
    right = torch.tensor([place for _, place in asked])
    statistics: dict[str, dict[str, ClipStatistic]] = {}
    for rule, shares in _RULES.items():
        parts = [(share, by_task[task]) for share, task in zip(shares, by_task, strict=True) if share]
        if all(scores is not None for _, scores in parts):
            mixed = torch.stack([share * scores for share, scores in parts if scores is not None]).sum(dim=0)
            statistics[rule] = rank_statistics(_by_clip(ranks(mixed, right), right, len(clips)))
    alone = statistics[next(iter(_RULES))]["MRR"]
    rows = []
    for rule, own in statistics.items():
        difference = compare(own["MRR"], alone)
        low, high = difference.interval
        figures = [f"{own[name].value:.3f}" for name in ("R@1", "R@5", "R@10", "MRR")]
        rows.append([rule, *figures, f"{difference.difference:+.3f} ({low:+.3f} to {high:+.3f})"])
    print(f"{len(asked):,} captions of {len(clips)} clips of the split '{options.split}'")
    print(
        tabulate(rows, ["score", "R@1", "R@5", "R@10", "MRR", "beside the embeddings"], disable_numparse=True)
    )


def _mean_scores(
    runs: Sequence[TrainedRun],
    task: str,
    clips: Sequence[tuple[Clip, Maps]],
    asked: Sequence[tuple[str, int]],
) -> Tensor | None:
    """The mean of the standardised scores of a task's runs, (queries, clips); None without such runs."""
    found = []
    for run in runs:
        if run.task == task:
            member: Any = run.loaded
            maps = [maps for _, maps in clips]
            encoding = joined(
                [
                    member.encode(maps[start : start + _CLIPS_AT_ONCE])
                    for start in range(0, len(maps), _CLIPS_AT_ONCE)
                ]
            )
            found.append(member.model.standardise(score_all(member, [query for query, _ in asked], encoding)))
    return torch.stack(found).mean(dim=0) if found else None


def _by_clip(found: Tensor, right: Tensor, num_clips: int) -> list[list[int]]:
    return [found[right == clip].tolist() for clip in range(num_clips)]


if __name__ == "__main__":
    main()
