"""Joint embedding for search: trained to find the clip of each sentence within a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ctsan.baselines.mean_pooling import MeanPooling
from ctsan.data.corpus import Clip, QueryItem
from ctsan.evaluation.items import item_statistics
from ctsan.evaluation.likeness import alike_clips
from ctsan.extensions.dual_encoder import DualEncoder, MatchCalibration, fit_matches, in_batch_loss
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.tasks.clips import TaskClips, answers_by_clip
from ctsan.tasks.queries import Queries, validation_queries
from ctsan.tasks.spec import AnswerReport, ModelInputs, TaskInputs, TaskSpec
from ctsan.tasks.task import Example, Measured
from ctsan.text.sentences import encode_sentences
from ctsan.text.vocabulary import PAD


class EmbeddingBatch(NamedTuple):
    """Each clip occurs once. Its maps are reduced to their mean, i.e. one cell in one frame."""

    maps: Tensor  # (B, 1, 1, 1, C)
    captions: Tensor  # (M, T), padded
    clip_of_caption: Tensor  # (M,), indices into the batch


class EmbeddingTask:
    """An example is one caption of a clip. The other clips of a batch are its negatives.

    Args:
        validation: queries for validation clips. Only clips with a query are ranked.
        temperature: cosines are divided by it before the softmax.
        match_top_k: best clips that tell whether a query has a match.
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
        match_top_k: int,
    ) -> None:
        self.model = model
        self.clips = clips
        self.temperature = temperature
        self.max_words = max_words
        self.match_top_k = match_top_k
        self.queries = Queries(clips, validation)
        self._examples = [(clip, caption) for clip in clips.epoch_clips for caption in clip.captions]

    @property
    def buckets(self) -> list[int]:
        return [self.clips.bucket(example[0]) for example in self._examples]

    def batch(self, examples: Sequence[int], *, mirrored: Sequence[bool]) -> EmbeddingBatch:
        drawn = [(*self._examples[example], flip) for example, flip in zip(examples, mirrored, strict=True)]
        once = {clip.id: (clip, flip) for clip, _, flip in drawn}  # clips may have several captions here
        places = {name: place for place, name in enumerate(once)}
        clips, flips = zip(*once.values(), strict=True)
        return EmbeddingBatch(
            maps=self.clips.means(clips, mirrored=flips),
            captions=self._encoded([caption for _, caption, _ in drawn]),
            clip_of_caption=torch.tensor([places[clip.id] for clip, _, _ in drawn]),
        )

    def num_words(self, batch: EmbeddingBatch) -> int:
        return int((batch.captions != PAD).sum())

    def losses(self, batch: EmbeddingBatch) -> dict[str, Tensor]:
        is_real = torch.ones(batch.maps.shape[:2], dtype=torch.bool, device=batch.maps.device)
        clips = self.model.embed_clips(self.model.clip_encoder(batch.maps, is_real))
        sentences = self.model.embed_sentences(batch.captions)
        loss = in_batch_loss(sentences, clips, batch.clip_of_caption, temperature=self.temperature)
        return {"embedding": loss}

    @torch.inference_mode()
    def evaluate(self) -> Mapping[str, float]:
        """Ranking metrics, and the accuracy of the "match" and "no match" decisions."""
        self.model.eval()
        encoding = self.clips.encoded(self.model.clip_encoder)
        rates = self._match_calibration(encoding).rates
        return self.queries.metrics(self._scores(self.queries.texts, encoding)) | {
            "match found": rates.found,
            "none without it and its like": rates.none,
            "none without it": rates.none_alone,
        }

    @torch.inference_mode()
    def calibrate(self) -> None:
        """Set the scale of the scores, and the threshold from which the best clip is a match."""
        self.model.eval()
        encoding = self.clips.encoded(self.model.clip_encoder)
        self.model.calibrate_scale(self._scores(self.queries.texts, encoding))
        self.model.set_matches(self._match_calibration(encoding))

    def _match_calibration(self, encoding: ClipEncoding) -> MatchCalibration:
        """Calibrate on the clips with a query: all their captions against all of these clips."""
        captions, right, is_alike = self._match_queries
        scores = self.model.standardise(self._scores(captions, encoding))
        return fit_matches(scores, torch.tensor(right), is_alike, top_k=self.match_top_k)

    @cached_property
    def _match_queries(self) -> tuple[list[str], list[int], Tensor]:
        """Captions of the ranked clips, their clips, and the clips like those."""
        by_clip = [self._captions(clip) for clip in self.queries.clips]
        captions = [caption for clip_captions in by_clip for caption in clip_captions]
        right = [place for place, clip_captions in enumerate(by_clip) for _ in clip_captions]
        lemmas = {
            candidate.word: candidate.lemma or candidate.word
            for candidate in self.clips.words.concepts.candidates
        }
        return captions, right, torch.from_numpy(alike_clips(captions, right, by_clip, lemmas))

    @torch.inference_mode()
    def measure(self, encoding: ClipEncoding | None = None) -> Measured:
        encoding = self.clips.encoded(self.model.clip_encoder) if encoding is None else encoding
        scores = self._scores(self.queries.texts, encoding)
        return Measured(self.queries.metrics(scores), answers_by_clip(self.queries.answered(scores)))

    @torch.inference_mode()
    def examples(self) -> list[Example]:
        """One query per clip, with the top-ranked clips. The score is 1 / rank."""
        self.model.eval()
        encoding = self.clips.encoded(self.model.clip_encoder)
        scores = self._scores(self.queries.texts, encoding)
        return self.clips.examples(encoding, self.queries.answered(scores))

    def _scores(self, sentences: Sequence[str], encoding: ClipEncoding) -> Tensor:
        """Cosines of all sentences with all ranked clips, (sentences, clips), on the CPU."""
        clips = self.model.embed_clips(self.queries.of_ranked(encoding))  # (clips, J)
        if not sentences:
            return torch.zeros(0, len(clips))
        return (self.model.embed_sentences(self._encoded(sentences).to(clips.device)) @ clips.mT).cpu()

    def _captions(self, clip: Clip) -> tuple[str, ...]:
        """Captions of a validation clip, or its query if the corpus has no captions."""
        return clip.captions or tuple(item.query for item in self.queries.items if item.clip == clip.id)

    def _encoded(self, sentences: Sequence[str]) -> Tensor:
        vocabulary = self.clips.words.vocabulary
        return torch.from_numpy(encode_sentences(sentences, vocabulary, max_words=self.max_words))


def _build_model(inputs: ModelInputs) -> DualEncoder:
    settings, words = inputs.settings, inputs.words
    return DualEncoder(
        clip_encoder=MeanPooling(
            channels=inputs.channels,
            embedding=torch.from_numpy(words.embedding),
            candidate_words=torch.tensor(words.vocabulary.encode(words.concepts.words)),
        ),
        joint_dim=settings.retrieval.joint_dim,
        clip_dropout=settings.retrieval.dropout,
        hidden_dim=settings.retrieval.hidden_dim,
        num_phrases=settings.retrieval.phrases,
    )


def _build_task(inputs: TaskInputs) -> EmbeddingTask:
    return EmbeddingTask(
        model=inputs.model,
        clips=inputs.clips,
        validation=validation_queries(inputs),
        temperature=inputs.settings.retrieval.temperature,
        max_words=inputs.settings.decoding.max_words,
        match_top_k=max(1, inputs.settings.retrieval.match_top_k),
    )


SPEC = TaskSpec(
    name="embed",
    help="Learn a joint embedding of sentences and clips, for 'ctsan index' and 'ctsan search'.",
    primary_metric=EmbeddingTask.primary_metric,
    build_model=_build_model,
    build_task=_build_task,
    report=lambda inputs: AnswerReport(item_statistics("rank", inputs.answers)),
    # The negatives are the other clips of a batch, so batches are large, and few steps are enough. The ridge
    # regression that initialises the embedding and the phrase probe are solved in closed form before the
    # first step.
    defaults=(
        "training.batch_size=256",
        "training.steps=1500",
        "optimiser.learning_rate=1e-3",
        "optimiser.weight_decay=0.05",
        "retrieval.hidden_dim=1024",
        "retrieval.temperature=0.07",
        "retrieval.ridge_init=true",
        "retrieval.phrases=16000",
        "retrieval.extra_vocabulary=30000",
        "ensemble.standardise=true",
    ),
    items=(("rank", "val"),),
    # Adding runs of `rank` and `choose` with a tenth of the weight gains .008 MRR on 55 clips and nothing on
    # 299. Larger weights do not help or are worse: bench/ensembles.py, docs/search.md.
    answer_noun="first-ranked clips",
    split_answers=lambda answers: [answer["first"] for answer in answers],
)
