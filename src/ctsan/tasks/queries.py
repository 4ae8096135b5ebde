"""Queries for clips: how well each is told from the others that are asked for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ctsan.data.corpus import Clip, QueryItem
from ctsan.evaluation.retrieval import ranks, retrieval_scores
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.tasks.clips import AnsweredItem, TaskClips
from ctsan.tasks.scoring import Scorer, score_all


class Queries:
    """Only clips that some query was written for are ranked.

    Attributes:
        items: the queries.
        clips: those that are ranked; scores have a column for each.
        right: (Q,), the column of the clip that each query was written for.
    """

    def __init__(self, clips: TaskClips, items: Sequence[QueryItem]) -> None:
        self.items = clips.asked(items)
        asked_for = {item.clip for item in self.items}
        self._rows = [row for row, clip in enumerate(clips.validation) if clip.id in asked_for]
        self.clips: list[Clip] = [clips.validation[row] for row in self._rows]
        places = {clip.id: place for place, clip in enumerate(self.clips)}
        self.right = torch.tensor([places[item.clip] for item in self.items])

    def of_ranked(self, encoding: ClipEncoding) -> ClipEncoding:
        """Of all validation clips to a row for each clip that is ranked."""
        return encoding.of(torch.tensor(self._rows, device=encoding.concepts.device))

    def scores(self, member: Scorer, encoding: ClipEncoding) -> Tensor:
        """Of every query with every clip that is ranked, (Q, clips), from what is made of all clips."""
        return score_all(member, [item.query for item in self.items], self.of_ranked(encoding))

    def metrics(self, scores: Tensor) -> dict[str, float]:
        return retrieval_scores(ranks(scores, self.right))

    def answered(self, scores: Tensor) -> list[AnsweredItem]:
        """The clip that comes first for each query, in their order."""
        found = zip(
            self.items, ranks(scores, self.right).tolist(), scores.argmax(dim=1).tolist(), strict=True
        )
        answered = []
        for item, rank, place in found:
            first = self.clips[place]
            answered.append(
                AnsweredItem(
                    clip=item.clip,
                    said=f"{item.query} → {first.captions[0] if first.captions else first.id}",
                    right=item.query,
                    is_right=rank == 1,
                    printed={"query": item.query, "rank": rank, "first": first.id},
                )
            )
        return answered
