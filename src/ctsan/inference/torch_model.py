"""Run the models of trained runs with PyTorch: the paper's baselines, added tasks, and all in evaluation.

No other module of `inference` imports PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ctsan.data.batches import pad_maps
from ctsan.inference.loaded_model import (
    BlankFiller,
    BlankReading,
    Captioner,
    CaptionReading,
    ClipEncoding,
    Detection,
    Floats,
    Ints,
    JointEmbedding,
    LoadedModel,
    SentenceScorer,
)
from ctsan.io.device import best_device
from ctsan.model import clip_encoder, concept_detector
from ctsan.model.beam_search import Steps
from ctsan.model.clip_encoder import ClipEncoder, reads_concepts
from ctsan.model.concept_detector import ConceptDetector
from ctsan.model.description_model import CaptionSteps
from ctsan.model.lstm import State
from ctsan.model.pair_scores import score_pairs
from ctsan.runs.trained_run import TrainedRun
from ctsan.text.sentences import WordIds
from ctsan.text.vocabulary import PAD, SPECIALS
from ctsan.video.clip_maps import subsample_maps
from ctsan.video.store import Maps


class TorchModel(LoadedModel):
    """The model of a run of any task.

    On a GPU only the clip encoder runs there. The language model stays on the CPU, because it runs word by
    word with little computation per step.
    """

    @property
    def has_detector(self) -> bool:
        return self._encoder.detector is not None

    @property
    def has_traces(self) -> bool:
        return isinstance(self._encoder.detector, ConceptDetector)

    @property
    def reads_concepts(self) -> bool:
        return reads_concepts(self._model)

    @property
    def prior(self) -> Floats | None:
        encoder = self._encoder
        if not isinstance(encoder, ClipEncoder) or not encoder.uses_prior:
            return None
        return _to_numpy(encoder.prior_weight * encoder.frequencies)

    def load(self) -> None:
        _ = self._device_encoder

    @torch.inference_mode()
    def encode(self, clips: Sequence[Maps]) -> ClipEncoding:
        encoder = self._device_encoder
        max_frames = self.settings.model.max_frames
        maps, frame_is_real = pad_maps([subsample_maps(clip, max_frames) for clip in clips])
        device = encoder.candidate_words.device
        return _encoding_to_numpy(encoder(maps.to(device), frame_is_real.to(device)))

    @torch.inference_mode()
    def replace_concepts(self, encoding: ClipEncoding, words: Ints, confidences: Floats) -> ClipEncoding:
        encoder, given = self._encoder, _encoding_to_torch(encoding)
        replaced = encoder.replace_concepts(given, torch.from_numpy(words), torch.from_numpy(confidences))
        return _encoding_to_numpy(replaced)

    @torch.inference_mode()
    def trace_shares(self, detection: Detection, candidates: Sequence[int]) -> Floats:
        states = torch.from_numpy(detection.states[:1])
        return _to_numpy(self._encoder.detector.shares(states, torch.tensor([candidates]))[0])

    @property
    def _model(self) -> Any:
        return self.run.model

    @property
    def _encoder(self) -> Any:
        return self._model.clip_encoder

    @cached_property
    def _device_encoder(self) -> Any:
        device = best_device()
        return deepcopy(self._encoder).to(device) if device == "cuda" else self._encoder


class TorchCaptioner(TorchModel, Captioner):
    def steps(self, encoding: ClipEncoding) -> Steps[Any]:
        with torch.inference_mode():
            return CaptionSteps(self._model, _encoding_to_torch(encoding))

    @torch.inference_mode()
    def read_caption(self, words: WordIds, encoding: ClipEncoding) -> CaptionReading:
        decoded = self._model(torch.from_numpy(words), _encoding_to_torch(encoding))
        return CaptionReading(
            _to_numpy(decoded.scores.log_softmax(dim=-1)),
            _optional(decoded.input_weights),
            _optional(decoded.output_weights),
        )


class TorchBlankFiller(TorchModel, BlankFiller):
    @torch.inference_mode()
    def read_blanks(self, sentences: WordIds, blanks: Ints, encoding: ClipEncoding) -> BlankReading:
        words = torch.from_numpy(sentences)
        filled = self._model(words, words != PAD, torch.from_numpy(blanks), _encoding_to_torch(encoding))
        filled.scores[:, : len(SPECIALS)] = -torch.inf
        output_weights = filled.output_weights
        return BlankReading(
            _to_numpy(filled.scores.softmax(dim=1)),
            _optional(filled.input_weights),
            None if output_weights is None else _to_numpy(output_weights[:, 0]),
        )


class TorchScorer(TorchModel, SentenceScorer):
    def score_all(self, sentences: WordIds, encoding: ClipEncoding) -> Floats:
        words = torch.from_numpy(sentences)
        return _to_numpy(score_pairs(self._model, words, _encoding_to_torch(encoding)))

    @torch.inference_mode()
    def score_each(self, sentences: WordIds, encoding: ClipEncoding) -> tuple[Floats, Floats | None]:
        words = torch.from_numpy(sentences)
        scored = self._model(words, words != PAD, _encoding_to_torch(encoding))
        return _to_numpy(scored.scores), _optional(scored.input_weights)

    @property
    def score_scale(self) -> tuple[float, float]:
        return float(self._model.score_mean), float(self._model.score_scale)


class TorchJointEmbedding(TorchScorer, JointEmbedding):
    @property
    def joint_dim(self) -> int:
        return int(self._model.joint_dim)

    @torch.inference_mode()
    def embed_clips(self, encoding: ClipEncoding) -> Floats:
        return _to_numpy(self._model.embed_clips(_encoding_to_torch(encoding)))

    @torch.inference_mode()
    def embed_sentences(self, sentences: WordIds) -> Floats:
        return _to_numpy(self._model.embed_sentences(torch.from_numpy(sentences)))

    def score_all(self, sentences: WordIds, encoding: ClipEncoding) -> Floats:
        scores: Floats = self.embed_sentences(sentences) @ self.embed_clips(encoding).T
        return scores

    @torch.inference_mode()
    def expected_cider(self, sentences: WordIds, encoding: ClipEncoding) -> Floats | None:
        probe = self._model.phrases
        if probe is None:
            return None
        weights = probe.weigh(torch.from_numpy(encoding.hidden[-1]))
        return _to_numpy(probe(torch.from_numpy(sentences), weights))

    @property
    def match_accuracy(self) -> float:
        return float(self._model.match_accuracy)

    def match_score(self, num_clips: int) -> float:
        return float(self._model.match_score(num_clips))


_KINDS: dict[str, Callable[[TrainedRun], LoadedModel]] = {
    "describe": TorchCaptioner,
    "fill": TorchBlankFiller,
    "choose": TorchScorer,
    "rank": TorchScorer,
    "embed": TorchJointEmbedding,
}


def load_torch_model(run: TrainedRun) -> LoadedModel:
    """The model of a run, by its task. That of any other task encodes clips and answers no questions."""
    return _KINDS.get(run.task, TorchModel)(run)


def _to_numpy(tensor: Tensor) -> Floats:
    return np.asarray(tensor.detach().float().cpu().numpy())


def _optional(weights: Tensor | None) -> Floats | None:
    return None if weights is None else _to_numpy(weights)


def _encoding_to_numpy(encoding: clip_encoder.ClipEncoding) -> ClipEncoding:
    detection = encoding.detection
    return ClipEncoding(
        _to_numpy(encoding.state.hidden),
        _to_numpy(encoding.state.cell),
        _to_numpy(encoding.concepts),
        encoding.concept_words.cpu().numpy(),
        _to_numpy(encoding.confidences),
        None if detection is None else _detection_to_numpy(detection),
    )


def _detection_to_numpy(detection: concept_detector.Detection) -> Detection:
    probed = detection.probed
    return Detection(
        _to_numpy(detection.confidences),
        None if probed is None else _to_numpy(probed.sigmoid()),
        _to_numpy(detection.attention),
        _to_numpy(detection.states),
    )


def _encoding_to_torch(encoding: ClipEncoding) -> clip_encoder.ClipEncoding:
    """The encoding as the language models read it: without the detection."""
    return clip_encoder.ClipEncoding(
        State(torch.from_numpy(encoding.hidden), torch.from_numpy(encoding.cell)),
        torch.from_numpy(encoding.concepts),
        torch.from_numpy(encoding.concept_words),
        torch.from_numpy(encoding.confidences),
        None,
    )
