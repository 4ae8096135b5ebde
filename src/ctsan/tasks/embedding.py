"""Joint embedding for search: trained to find the clip of each sentence within a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ctsan.baselines.mean_pooling import MeanPooling
from ctsan.data.corpus import Clip, QueryItem
from ctsan.evaluation.items import item_statistics
from ctsan.extensions.dual_encoder import DualEncoder, MatchCalibration, fit_matches, in_batch_loss
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.tasks.clips import TaskClips, printed
from ctsan.tasks.loaded_model import LoadedModel
from ctsan.tasks.queries import Queries, validation_queries
from ctsan.tasks.scoring import encode_sentences, score_all
from ctsan.tasks.spec import AnswerReport, ModelInputs, TaskInputs, TaskSpec
from ctsan.tasks.task import Example, Measured
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
        self.queries = Queries(clips, validation)
        self._examples = [(clip, caption) for clip in clips.learnt for caption in clip.captions]

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
        [encoding] = self.clips.encoded([self._loaded])
        rates = self._match_calibration(encoding).rates
        return self.queries.metrics(self.queries.scores(self._loaded, encoding).cpu()) | {
            "match found": rates.found,
            "none without it and its like": rates.none,
            "none without it": rates.none_alone,
        }

    @torch.inference_mode()
    def calibrate(self) -> None:
        """Set the scale of the scores, and the threshold from which the best clip is a match."""
        self.model.eval()
        [encoding] = self.clips.encoded([self._loaded])
        self.model.calibrate_scale(self.queries.scores(self._loaded, encoding))
        self.model.set_matches(self._match_calibration(encoding))

    def _match_calibration(self, encoding: ClipEncoding) -> MatchCalibration:
        """Calibrate on the clips with a query: all their captions against all of these clips."""
        captions = [
            (caption, place)
            for place, clip in enumerate(self.queries.clips)
            for caption in self._captions(clip)
        ]
        ranked = self.queries.of_ranked(encoding)
        clips = self.model.embed_clips(ranked).cpu()
        return fit_matches(
            score_all(self._loaded, [caption for caption, _ in captions], ranked).cpu(),
            torch.tensor([place for _, place in captions]),
            clips @ clips.mT,
        )

    @torch.inference_mode()
    def measure(
        self, members: Sequence[LoadedModel[DualEncoder]], encodings: Sequence[ClipEncoding] | None = None
    ) -> Measured:
        encodings = self.clips.encoded(members) if encodings is None else encodings
        scores = self.queries.ensemble_scores(members, encodings)
        return Measured(self.queries.metrics(scores), printed(self.queries.answered(scores)))

    @torch.inference_mode()
    def examples(self) -> list[Example]:
        """One query per clip, with the top-ranked clips. The score is 1 / rank."""
        self.model.eval()
        [encoding] = self.clips.encoded([self._loaded])
        scores = self.queries.scores(self._loaded, encoding).cpu()
        return self.clips.examples(encoding, self.queries.answered(scores))

    @property
    def _loaded(self) -> LoadedModel[DualEncoder]:
        return LoadedModel(self.model, self.clips.words, self.clips.max_frames, self.max_words)

    def _captions(self, clip: Clip) -> tuple[str, ...]:
        """Captions of a validation clip, or its query if the corpus has no captions."""
        return clip.captions or tuple(item.query for item in self.queries.items if item.clip == clip.id)

    def _encoded(self, sentences: Sequence[str]) -> Tensor:
        return encode_sentences(sentences, self.clips.words.vocabulary, max_words=self.max_words)


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
    decides=("choose", "rank"),
    answer_noun="first-ranked clips",
    split_answers=lambda answers: [answer["first"] for answer in answers],
)
