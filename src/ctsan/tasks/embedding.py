"""A joint embedding for search: learn which clip of a batch each sentence was written for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ctsan.data.corpus import Clip, QueryItem
from ctsan.evaluation.retrieval import ranks, retrieval_scores
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.dual_encoder import DualEncoder, in_batch_loss
from ctsan.tasks.clips import AnsweredItem, TaskClips, printed
from ctsan.tasks.member import Member
from ctsan.tasks.scoring import encode_sentences
from ctsan.tasks.task import Example, Measured
from ctsan.text.vocabulary import PAD


class EmbeddingBatch(NamedTuple):
    """A clip is there once; its maps are only their mean, a grid of one place in one frame."""

    maps: Tensor  # (B, 1, 1, 1, C)
    captions: Tensor  # (M, T), padded
    clip_of_caption: Tensor  # (M,), places in the batch


class EmbeddingTask:
    """An example is one caption of a clip; the other clips of a batch are what it must be told from.

    Args:
        validation: queries for the validation clips; the clips that they are for are ranked.
        temperature: cosines are divided by it before the softmax.
    """

    primary_metric = "MRR"

    def __init__(
        self,
        *,
        model: DualEncoder,
        clips: TaskClips,
        validation: Sequence[QueryItem],
        temperature: float,
        max_words: int,
    ) -> None:
        self.model = model
        self.clips = clips
        self.temperature = temperature
        self.max_words = max_words
        self.items = clips.asked(validation)
        asked_for = {item.clip for item in self.items}
        self._ranked = [row for row, clip in enumerate(clips.validation) if clip.id in asked_for]
        self._places = {clips.validation[row].id: place for place, row in enumerate(self._ranked)}
        self._right = torch.tensor([self._places[item.clip] for item in self.items])
        self._examples = [(clip, caption) for clip in clips.train for caption in clip.captions]
        self._means: dict[tuple[str, bool], Tensor] = {}  # by clip, and whether mirrored

    @property
    def num_examples(self) -> int:
        return len(self._examples)

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> EmbeddingBatch:
        drawn = [(*self._examples[example], flip) for example, flip in zip(examples, mirrored, strict=True)]
        once = {clip.id: (clip, flip) for clip, _, flip in drawn}  # a clip may be drawn with other captions
        places = {name: place for place, name in enumerate(once)}
        return EmbeddingBatch(
            maps=torch.stack([self._mean(clip, mirrored=flip) for clip, flip in once.values()]),
            captions=self._encoded([caption for _, caption, _ in drawn]),
            clip_of_caption=torch.tensor([places[clip.id] for clip, _, _ in drawn]),
        )

    def num_words(self, batch: EmbeddingBatch) -> int:
        return int((batch.captions != PAD).sum())

    def losses(self, batch: EmbeddingBatch, *, progress: float = 0.0) -> dict[str, Tensor]:  # noqa: ARG002  # all count
        is_real = torch.ones(batch.maps.shape[:2], dtype=torch.bool, device=batch.maps.device)
        clips = self.model.embed_clips(self.model.clip_encoder(batch.maps, is_real))
        sentences = self.model.embed_sentences(batch.captions)
        loss = in_batch_loss(sentences, clips, batch.clip_of_caption, temperature=self.temperature)
        return {"embedding": loss}

    @torch.inference_mode()
    def evaluate(self) -> Mapping[str, float]:
        """How well clips are ranked, and how often it is right that a query has a match or has none."""
        self.model.eval()
        [encoding] = self.clips.encoded([self._member])
        scores = self._scores(self._member, encoding, [item.query for item in self.items])
        self.model.know_scale(scores)
        captions = [
            (caption, self.clips.validation[row].id)
            for row in self._ranked
            for caption in self._captions(row)
        ]
        rows = torch.tensor(self._ranked, device=encoding.concepts.device)
        clips = self.model.embed_clips(encoding.of(rows)).cpu()
        matches = self.model.know_matches(
            self._scores(self._member, encoding, [caption for caption, _ in captions]).cpu(),
            torch.tensor([self._places[clip] for _, clip in captions]),
            clips @ clips.mT,
        )
        metrics = retrieval_scores(ranks(scores.cpu(), self._right))
        return metrics | {
            "match found": matches.found,
            "none without it and its like": matches.none,
            "none without it": matches.none_alone,
        }

    @torch.inference_mode()
    def measure(self, members: Sequence[Member[DualEncoder]]) -> Measured:
        queries = [item.query for item in self.items]
        scores = torch.stack(
            [
                self._scores(member, own, queries).cpu()
                for member, own in zip(members, self.clips.encoded(members), strict=True)
            ]
        ).mean(dim=0)
        return Measured(retrieval_scores(ranks(scores, self._right)), printed(self._answered(scores)))

    @torch.inference_mode()
    def examples(self) -> list[Example]:
        """For each clip its query, and the captions of the clip that came first."""
        self.model.eval()
        [encoding] = self.clips.encoded([self._member])
        scores = self._scores(self._member, encoding, [item.query for item in self.items]).cpu()
        return self.clips.examples(encoding, self._answered(scores))

    @property
    def _member(self) -> Member[DualEncoder]:
        return Member(self.model, self.clips.words, self.clips.max_frames, self.max_words)

    def _captions(self, row: int) -> tuple[str, ...]:
        """Of a validation clip; its query where a corpus has nothing else."""
        clip = self.clips.validation[row]
        return clip.captions or tuple(item.query for item in self.items if item.clip == clip.id)

    def _scores(
        self, member: Member[DualEncoder], encoding: ClipEncoding, sentences: Sequence[str]
    ) -> Tensor:
        """Of every sentence with every clip that is asked for, (Q, clips)."""
        rows = torch.tensor(self._ranked, device=encoding.concepts.device)
        words = encode_sentences(sentences, member.words.vocabulary, max_words=member.max_words)
        return (
            member.model.embed_sentences(words.to(rows.device))
            @ member.model.embed_clips(encoding.of(rows)).mT
        )

    def _answered(self, scores: Tensor) -> list[AnsweredItem]:
        """The clip that comes first for each query, in their order."""
        found = zip(
            self.items, ranks(scores, self._right).tolist(), scores.argmax(dim=1).tolist(), strict=True
        )
        answered = []
        for item, rank, place in found:
            first = self.clips.validation[self._ranked[place]]
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

    def _mean(self, clip: Clip, *, mirrored: bool) -> Tensor:
        """The mean of a clip's maps, read once and kept: (1, 1, 1, C)."""
        key = clip.id, mirrored
        if key not in self._means:
            maps, frame_is_real = self.clips.maps([clip], mirrored=[mirrored])
            self._means[key] = maps[frame_is_real].mean(dim=(0, 1, 2))[None, None, None]
        return self._means[key]

    def _encoded(self, sentences: Sequence[str]) -> Tensor:
        return encode_sentences(sentences, self.clips.words.vocabulary, max_words=self.max_words)
