"""Retrieval: learn which clip a sentence was written for, among many (appendix A.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ctsan.data.batches import CaptionBatch
from ctsan.data.corpus import QueryItem
from ctsan.evaluation.retrieval import ranks, retrieval_scores
from ctsan.model.choice_model import Scored
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.lstm import State
from ctsan.model.retrieval_model import RetrievalModel, pairwise_margin_loss
from ctsan.tasks.choice import encode_sentences
from ctsan.tasks.clips import ItemExample, TaskClips
from ctsan.tasks.losses import attention_losses, detector_losses
from ctsan.tasks.task import Example
from ctsan.text.vocabulary import PAD

_PAIRS_AT_ONCE = 2000


class RetrievalTask:
    """An example is a clip with some of its captions; in a batch each is a negative of the other clips'.

    Args:
        validation: queries for the validation clips.
        margin: Δ.
    """

    primary_metric = "MRR"

    def __init__(
        self,
        *,
        model: RetrievalModel,
        clips: TaskClips,
        validation: Sequence[QueryItem],
        attention_weight: float,
        concept_weight: float,
        captions_per_clip: int,
        max_words: int,
        margin: float = 3.0,
    ) -> None:
        self.model = model
        self.clips = clips
        self.attention_weight = attention_weight
        self.concept_weight = concept_weight
        self.max_words = max_words
        self.margin = margin
        known = {clip.id for clip in clips.validation}
        self.items = [item for item in validation if item.clip in known]
        self._examples = [
            (clip, clip.captions[start : start + captions_per_clip])
            for clip in clips.train
            for start in range(0, len(clip.captions), captions_per_clip)
        ]

    @property
    def num_examples(self) -> int:
        return len(self._examples)

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> CaptionBatch:
        drawn = [(*self._examples[example], flip) for example, flip in zip(examples, mirrored, strict=True)]
        once = {clip.id: (clip, flip) for clip, _, flip in drawn}  # a clip may be drawn with other captions
        places = {name: place for place, name in enumerate(once)}
        clips = [clip for clip, _ in once.values()]
        maps, frame_is_real = self.clips.maps(clips, mirrored=[flip for _, flip in once.values()])
        sentences = [(places[clip.id], sentence) for clip, captions, _ in drawn for sentence in captions]
        return CaptionBatch(
            maps=maps,
            frame_is_real=frame_is_real,
            reference=self.clips.reference(clips),
            captions=self._encoded([sentence for _, sentence in sentences]),
            clip_of_caption=torch.tensor([place for place, _ in sentences]),
        )

    def num_words(self, batch: CaptionBatch) -> int:
        return int((batch.captions != PAD).sum())

    def losses(self, batch: CaptionBatch) -> dict[str, Tensor]:
        """The terms of the paper's loss, each a mean over captions or clips."""
        encoding = self.model.clip_encoder(batch.maps, batch.frame_is_real, batch.reference)
        clips, sentences = len(batch.maps), len(batch.captions)
        rows = torch.arange(clips, device=batch.captions.device).repeat_interleave(sentences)
        queries = batch.captions.repeat(clips, 1)
        scored: Scored = self.model(queries, queries != PAD, encoding.of(rows))
        scores = scored.scores.view(clips, sentences)[batch.clip_of_caption]  # (M, M): right on the diagonal
        same_clip = batch.clip_of_caption[:, None] == batch.clip_of_caption
        losses = {"ranking": pairwise_margin_loss(scores, same_clip, margin=self.margin).mean()}
        losses |= attention_losses(self.attention_weight, input=(scored.input_weights, queries != PAD))
        return losses | detector_losses(self.concept_weight, encoding, batch.reference)

    @torch.inference_mode()
    def evaluate(self) -> Mapping[str, float]:
        """How well the validation clips are ranked for their queries, and the detector's precision."""
        self.model.eval()
        metrics = retrieval_scores(ranks(self._scores(), self._right()))
        return metrics | self.clips.judge_concepts(self.model.clip_encoder)

    @torch.inference_mode()
    def examples(self) -> list[Example]:
        """For each clip its query, and the captions of the clip that came first."""
        self.model.eval()
        first = self._scores().argmax(dim=1).tolist()
        said = [
            ItemExample(
                item.clip,
                f"{item.query} → {self.clips.validation[best].captions[0]}",
                item.query,
                self.clips.validation[best].id == item.clip,
            )
            for item, best in zip(self.items, first, strict=True)
        ]
        return self.clips.examples(self.model.clip_encoder, said)

    def _right(self) -> Tensor:
        places = {clip.id: place for place, clip in enumerate(self.clips.validation)}
        return torch.tensor([places[item.clip] for item in self.items])

    def _scores(self) -> Tensor:
        """Of every validation query with every validation clip, (Q, clips)."""
        encodings = [each for _, each in self.clips.encoded(self.model.clip_encoder, self.clips.validation)]
        queries = self._encoded([item.query for item in self.items])
        return score_pairs(self.model, queries, _joined(encodings)).cpu()

    def _encoded(self, sentences: Sequence[str]) -> Tensor:
        return encode_sentences(sentences, self.clips.words.vocabulary, max_words=self.max_words)


def score_pairs(model: RetrievalModel, queries: Tensor, encoding: ClipEncoding) -> Tensor:
    """Scores of all queries (Q, T) with all encoded clips, (Q, clips)."""
    queries = queries.to(encoding.concepts.device)
    clips = len(encoding.concepts)
    pairs = torch.split(torch.arange(len(queries) * clips, device=queries.device), _PAIRS_AT_ONCE)
    scores = [
        model(queries[some // clips], queries[some // clips] != PAD, encoding.of(some % clips)).scores
        for some in pairs
    ]
    return torch.cat(scores).view(len(queries), clips)


def _joined(encodings: Sequence[ClipEncoding]) -> ClipEncoding:
    """Encodings of several batches as one, without what the detector found beside the words."""
    return ClipEncoding(
        state=State(
            torch.cat([each.state.hidden for each in encodings], dim=1),
            torch.cat([each.state.cell for each in encodings], dim=1),
        ),
        concepts=torch.cat([each.concepts for each in encodings]),
        concept_words=torch.cat([each.concept_words for each in encodings]),
        confidences=torch.cat([each.confidences for each in encodings]),
        detection=None,
    )
