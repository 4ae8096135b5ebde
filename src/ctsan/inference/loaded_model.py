"""Trained models behind NumPy arrays: what the rest of `inference` asks, whatever runs the networks.

`LoadedModel` encodes clips. Its subclasses answer one kind of question each. `onnx_model`
implements them, and `torch_model` for models without ONNX graphs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ctsan.model.beam_search import Floats, Ints, Steps
from ctsan.runs.trained_run import TrainedRun
from ctsan.text.concepts import Concepts
from ctsan.text.sentences import WordIds
from ctsan.text.vocabulary import Vocabulary
from ctsan.video.store import Maps

__all__ = ["Captioner", "ClipEncoding", "Floats", "Ints", "JointEmbedding", "LoadedModel", "SentenceScorer"]


@dataclass(frozen=True, slots=True, eq=False)
class Detection:
    """Output of a concept word detector for B clips."""

    confidences: Floats  # (B, V), of all candidates
    probe_confidences: Floats | None  # (B, V), of the probe alone; None without a probe
    attention: Floats  # (B, N, L, h, w), spatial attention of each trace; sums to 1 over the grid
    states: Floats  # (B, L, D), final state of each trace

    def of(self, rows: Ints) -> Detection:
        probed = self.probe_confidences
        return Detection(
            self.confidences[rows],
            None if probed is None else probed[rows],
            self.attention[rows],
            self.states[rows],
        )


@dataclass(frozen=True, slots=True, eq=False)
class ClipEncoding:
    """B clips, as one model encodes them."""

    hidden: Floats  # (layers, B, D), s_N
    cell: Floats  # (layers, B, D)
    concepts: Floats  # (B, K, E), embeddings of the concept words; zeros where there is no word
    concept_words: Ints  # (B, K), candidate indices in order of rank; arbitrary where there is no word
    confidences: Floats  # (B, K), 0 where there is no word, because a clip may have fewer than K
    detection: Detection | None  # None if there is no detector, or if it was left out

    def __len__(self) -> int:
        return len(self.concepts)

    @property
    def without_detection(self) -> ClipEncoding:
        return replace(self, detection=None)

    def of(self, rows: Ints | Sequence[int]) -> ClipEncoding:
        """Select rows by clip index, for example one row per sentence."""
        rows = np.asarray(rows, np.int64)
        return ClipEncoding(
            self.hidden[:, rows],
            self.cell[:, rows],
            self.concepts[rows],
            self.concept_words[rows],
            self.confidences[rows],
            None if self.detection is None else self.detection.of(rows),
        )


def concatenate(encodings: Sequence[ClipEncoding]) -> ClipEncoding:
    """Encodings of several batches as one, without their detections."""
    return ClipEncoding(
        np.concatenate([encoding.hidden for encoding in encodings], axis=1),
        np.concatenate([encoding.cell for encoding in encodings], axis=1),
        np.concatenate([encoding.concepts for encoding in encodings]),
        np.concatenate([encoding.concept_words for encoding in encodings]),
        np.concatenate([encoding.confidences for encoding in encodings]),
        None,
    )


class CaptionReading(NamedTuple):
    """A captioner's output when it reads given words. Weights are None for a disabled attention."""

    log_probabilities: Floats  # (B, T, words), of the next word
    input_weights: Floats | None  # γ, (B, T, K)
    output_weights: Floats | None  # β, (B, T, K)


class BlankReading(NamedTuple):
    """Predictions for the blanks of M sentences. Weights are None for a disabled attention."""

    probabilities: Floats  # (M, words); 0 for special tokens
    input_weights: Floats | None  # γ, (M, T, K)
    output_weights: Floats | None  # β, (M, K)


class LoadedModel(ABC):
    """The model of a trained run. Words and weights are loaded on first use.

    Attributes:
        folder: of the run.
        recipe: how its features are computed.
    """

    def __init__(self, run: TrainedRun) -> None:
        self.run = run
        self.folder, self.task = run.folder, run.task
        self.settings, self.recipe = run.settings, run.recipe

    @property
    def vocabulary(self) -> Vocabulary:
        return self.run.words.vocabulary

    @property
    def concepts(self) -> Concepts:
        """The concept candidates."""
        return self.run.words.concepts

    @property
    @abstractmethod
    def has_detector(self) -> bool: ...

    @property
    @abstractmethod
    def has_traces(self) -> bool:
        """Whether the detector is the paper's, which follows regions."""

    @property
    @abstractmethod
    def reads_concepts(self) -> bool:
        """Whether the language model attends to concept words."""

    @property
    @abstractmethod
    def prior(self) -> Floats | None:
        """w q (V,), if concept words are ranked by p - w q; None if they are ranked by p."""

    @abstractmethod
    def load(self) -> None:
        """Load the weights now, so that the first query does not pay for it."""

    @abstractmethod
    def encode(self, clips: Sequence[Maps]) -> ClipEncoding:
        """Encode the maps of clips, one row each, subsampled to `model.max_frames`."""

    @abstractmethod
    def replace_concepts(self, encoding: ClipEncoding, words: Ints, confidences: Floats) -> ClipEncoding:
        """Replace the concept words by candidates (B, K). A confidence of 0 marks an empty slot."""

    @abstractmethod
    def trace_shares(self, detection: Detection, candidates: Sequence[int]) -> Floats:
        """Contribution of each trace to the traces' score of candidates, for the first clip: (n, L)."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.folder.name}, {self.task})"


class Captioner(LoadedModel):
    """Generates captions."""

    @abstractmethod
    def steps(self, encoding: ClipEncoding) -> Steps[Any]:
        """The decoder, for a beam search."""

    @abstractmethod
    def read_caption(self, words: WordIds, encoding: ClipEncoding) -> CaptionReading:
        """Read captions (B, T), one for each encoded clip, with teacher forcing."""


class BlankFiller(LoadedModel):
    """Fills blanks."""

    @abstractmethod
    def read_blanks(self, sentences: WordIds, blanks: Ints, encoding: ClipEncoding) -> BlankReading:
        """Predict the word at one blank of each sentence (M, T), padded; one encoded clip per sentence.

        Args:
            blanks: (M,), the index of the blank in its sentence.
        """


class SentenceScorer(LoadedModel):
    """Scores how well sentences match clips."""

    @abstractmethod
    def score_all(self, sentences: WordIds, encoding: ClipEncoding) -> Floats:
        """Scores of all sentences (Q, T), padded, with all encoded clips: (Q, B), not standardised."""

    @abstractmethod
    def score_each(self, sentences: WordIds, encoding: ClipEncoding) -> tuple[Floats, Floats | None]:
        """Scores (M,) of sentences with the clips in their rows, and input weights γ (M, T, K), if any."""

    @property
    @abstractmethod
    def score_scale(self) -> tuple[float, float]:
        """Mean and standard deviation of the scores on validation clips."""

    def standardise(self, scores: Floats) -> Floats:
        mean, scale = self.score_scale
        return (scores - np.float32(mean)) / np.float32(scale)


class JointEmbedding(SentenceScorer):
    """Embeds clips and sentences as unit vectors. A score is their cosine."""

    @property
    @abstractmethod
    def joint_dim(self) -> int: ...

    @abstractmethod
    def embed_clips(self, encoding: ClipEncoding) -> Floats:
        """(B, J), of length one."""

    @abstractmethod
    def embed_sentences(self, sentences: WordIds) -> Floats:
        """(M, T), padded, to (M, J), of length one."""

    @abstractmethod
    def expected_cider(self, sentences: WordIds, encoding: ClipEncoding) -> Floats | None:
        """The phrase probe's CIDEr (B, M) of sentences (B, M, T), padded; None without a probe."""

    @property
    @abstractmethod
    def match_accuracy(self) -> float:
        """Share of validation queries for which the decision "match" or "no match" is correct."""

    @abstractmethod
    def match_score(self, num_clips: int) -> float:
        """Score, in standard deviations, from which the best of `num_clips` clips is a match."""
