"""Which models should score a sentence with a clip: joint embeddings, runs of `rank` and `choose`, or all?

    python bench/ensembles.py --corpus CLIPS --features FEATURES --model PACK
    python bench/ensembles.py --corpus CLIPS MORE --features FEATURES MORE-FEATURES --model PACK

Captions of the validation clips are the queries, and all clips of the corpora are ranked for each. A score is
a mixture of three means of standardised scores: of the runs of `embed`, of `rank` and of `choose`. The last
column is the MRR less that of the joint embeddings alone, with a 95 % bootstrap interval over clips: a rule
whose interval contains 0 is not significantly different. docs/search.md has the table. Because of it, joint
embeddings decide alone in `answering` of trained_run.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from tabulate import tabulate
from torch import Tensor

from ctsan.data.corpus import Clip
from ctsan.data.reading import read_corpus
from ctsan.evaluation.bootstrap import compare
from ctsan.evaluation.clip_statistics import ClipStatistic
from ctsan.evaluation.retrieval import rank_statistics, ranks
from ctsan.inference.ensemble import word_ids
from ctsan.inference.loaded_model import LoadedModel, SentenceScorer, concatenate
from ctsan.inference.loading import load_models
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
        split_clips = [
            clip for clip in read_corpus(place) if clip.split == options.split and clip.id in store
        ]
        clips += [(clip, store[clip.id].maps) for clip in split_clips]
    queries = [
        (caption, place)
        for place, (clip, _) in enumerate(clips)
        for caption in clip.captions[: options.queries]
    ]
    models = load_models(options.model)
    by_task = {task: _mean_scores(models, task, clips, queries) for task in ("embed", "rank", "choose")}
    right = torch.tensor([place for _, place in queries])
    statistics: dict[str, dict[str, ClipStatistic]] = {}
    for rule, shares in _RULES.items():
        parts = [(share, by_task[task]) for share, task in zip(shares, by_task, strict=True) if share]
        if all(scores is not None for _, scores in parts):
            mixed = torch.stack([share * scores for share, scores in parts if scores is not None]).sum(dim=0)
            statistics[rule] = rank_statistics(_by_clip(ranks(mixed, right), right, len(clips)))
    alone = statistics[next(iter(_RULES))]["MRR"]
    rows = []
    for rule, by_metric in statistics.items():
        difference = compare(by_metric["MRR"], alone)
        low, high = difference.interval
        figures = [f"{by_metric[name].value:.3f}" for name in ("R@1", "R@5", "R@10", "MRR")]
        rows.append([rule, *figures, f"{difference.difference:+.3f} ({low:+.3f} to {high:+.3f})"])
    print(f"{len(queries):,} captions of {len(clips)} clips of the split '{options.split}'")
    print(
        tabulate(rows, ["score", "R@1", "R@5", "R@10", "MRR", "beside the embeddings"], disable_numparse=True)
    )


def _mean_scores(
    models: Sequence[LoadedModel],
    task: str,
    clips: Sequence[tuple[Clip, Maps]],
    queries: Sequence[tuple[str, int]],
) -> Tensor | None:
    """The mean of the standardised scores of a task's models, (queries, clips); None without such models."""
    standardised = []
    for model in models:
        if model.task == task and isinstance(model, SentenceScorer):
            maps = [maps for _, maps in clips]
            encoding = concatenate(
                [
                    model.encode(maps[start : start + _CLIPS_AT_ONCE])
                    for start in range(0, len(maps), _CLIPS_AT_ONCE)
                ]
            )
            scores = model.score_all(word_ids(model, [query for query, _ in queries]), encoding)
            standardised.append(torch.from_numpy(model.standardise(scores)))
    return torch.stack(standardised).mean(dim=0) if standardised else None


def _by_clip(query_ranks: Tensor, right: Tensor, num_clips: int) -> list[list[int]]:
    return [query_ranks[right == clip].tolist() for clip in range(num_clips)]


if __name__ == "__main__":
    main()
