"""Rank clips for queries, and measure the ranking."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ctsan.data.corpus import Clip, QueryItem
from ctsan.evaluation.retrieval import ranks, retrieval_scores
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.tasks.clips import AnsweredItem, TaskClips
from ctsan.tasks.spec import TaskInputs
from ctsan.tasks.task import ShownClip

_MOST_QUERIES = 1000
NUM_SHOWN = 5  # clips shown per query, as in the paper's appendix D


class Queries:
    """Queries for validation clips. Only clips with a query are ranked.

    Attributes:
        items: the queries.
        clips: the ranked clips, in the order of score columns.
        rows: rows of the ranked clips in an encoding of all validation clips.
        right: (Q,), column of the clip that each query was written for.
    """

    def __init__(self, clips: TaskClips, items: Sequence[QueryItem]) -> None:
        self.items = clips.validation_items(items)
        asked_for = {item.clip for item in self.items}
        self.rows = [row for row, clip in enumerate(clips.validation) if clip.id in asked_for]
        self.clips: list[Clip] = [clips.validation[row] for row in self.rows]
        places = {clip.id: place for place, clip in enumerate(self.clips)}
        self.right = torch.tensor([places[item.clip] for item in self.items])

    def of_ranked(self, encoding: ClipEncoding) -> ClipEncoding:
        """Select the rows of ranked clips from an encoding of all validation clips."""
        return encoding.of(torch.tensor(self.rows, device=encoding.concepts.device))

    @property
    def texts(self) -> list[str]:
        return [item.query for item in self.items]

    def metrics(self, scores: Tensor) -> dict[str, float]:
        return retrieval_scores(ranks(scores, self.right))

    def answered(self, scores: Tensor) -> list[AnsweredItem]:
        """The top-ranked clips for each query, in the order of the queries."""
        ranked = ranks(scores, self.right).tolist()
        wrong = scores.scatter(1, self.right[:, None], -torch.inf)
        best_wrong = wrong.topk(min(NUM_SHOWN, len(self.clips)), dim=1).indices.tolist()
        firsts = scores.argmax(dim=1).tolist()
        rows = zip(self.items, self.right.tolist(), ranked, firsts, best_wrong, strict=True)
        return [
            AnsweredItem(
                clip=item.clip,
                answer=item.query,
                right=item.query,
                score=1 / rank,
                output={"query": item.query, "rank": rank, "first": self.clips[first].id},
                ranked=self._top_clips(right, rank, best),
                num_ranked=len(self.clips),
            )
            for item, right, rank, first, best in rows
        ]

    def _top_clips(self, right: int, rank: int, best: Sequence[int]) -> tuple[ShownClip, ...]:
        """The top five clips, or the top four and the correct clip if it is not among the five.

        Args:
            right: column of the correct clip.
            best: columns of the best other clips, best first.
        """
        first = [(place, column) for place, column in enumerate(best, start=1) if column != right]
        above = [(place, column) for place, column in first if place < rank][: NUM_SHOWN - 1]
        below = [(place + 1, column) for place, column in first if place >= rank]
        top = [*above, (rank, right), *below][:NUM_SHOWN]
        return tuple(
            ShownClip(place, self.clips[column].id, self.clips[column].path, is_right=column == right)
            for place, column in top
        )


def validation_queries(inputs: TaskInputs) -> list[QueryItem]:
    """Queries of the evaluated split; for validation at most a thousand, as many as the paper ranks."""
    queries = inputs.items(QueryItem, "rank", inputs.split)
    return queries[:: math.ceil(len(queries) / _MOST_QUERIES)] if inputs.split == "val" else queries
