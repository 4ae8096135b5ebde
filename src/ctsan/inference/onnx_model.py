"""Run the models of trained runs with NumPy and ONNX Runtime.

The networks are ONNX graphs, which `onnx_graphs` builds from the weights of a run when they are first needed.
What is left is in NumPy: padding, looking up words, selecting concept words, and the search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ctsan.inference import onnx_graphs as graphs
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
from ctsan.inference.onnx_weights import check_fit
from ctsan.inference.phrases import expected_cider
from ctsan.io.onnx_graph import Array, Graph
from ctsan.io.onnx_session import Session
from ctsan.runs.trained_run import has_detector
from ctsan.text.sentences import WordIds
from ctsan.text.vocabulary import PAD, SPECIALS
from ctsan.video.clip_maps import subsample_maps
from ctsan.video.store import Maps

_FORMS = 4  # the top 4 K candidates are searched for K distinct lemmas
_PAIRS_AT_ONCE = 256  # sentences with clips that are read in one batch


class OnnxModel(LoadedModel):
    """The model of a run of any task that has graphs. On a GPU only the clip encoder runs there."""

    @property
    def has_detector(self) -> bool:
        return has_detector(self.run)

    @property
    def has_traces(self) -> bool:
        return self.has_detector

    @property
    def reads_concepts(self) -> bool:
        attention = self.settings.attention
        has_output = attention.output and self.task in ("describe", "fill")
        return self.has_detector and (attention.input or has_output)

    @property
    def prior(self) -> Floats | None:
        weight = self.settings.detector.prior_weight
        return np.float32(weight) * self._weights["clip_encoder.frequencies"] if weight else None

    def load(self) -> None:
        _ = self._encoder

    def encode(self, clips: Sequence[Maps]) -> ClipEncoding:
        maps, frame_is_real = _padded(
            [subsample_maps(clip, self.settings.model.max_frames) for clip in clips]
        )
        encoded = self._encoder({"maps": maps, "frame_is_real": frame_is_real})
        hidden, cell = self._state(encoded, len(clips))
        if "scores" not in encoded:
            nothing = np.zeros((len(clips), 0), np.float32)
            concepts = np.zeros((len(clips), 0, self._embedding.shape[1]), np.float32)
            return ClipEncoding(hidden, cell, concepts, nothing.astype(np.int64), nothing, None)
        confidences = _sigmoid(encoded["scores"])
        words = self._top(encoded["scores"], confidences)
        probed = encoded.get("probed")
        detection = Detection(
            confidences,
            None if probed is None else _sigmoid(probed),
            encoded["attention"].reshape(*encoded["attention"].shape[:3], *self.recipe.grid),
            encoded["states"],
        )
        sure = np.take_along_axis(confidences, words, axis=1)
        return ClipEncoding(hidden, cell, self._embed_concepts(words, sure), words, sure, detection)

    def replace_concepts(self, encoding: ClipEncoding, words: Ints, confidences: Floats) -> ClipEncoding:
        concepts = self._embed_concepts(words, confidences)
        return replace(encoding, concepts=concepts, concept_words=words, confidences=confidences)

    def trace_shares(self, detection: Detection, candidates: Sequence[int]) -> Floats:
        states = detection.states[0]  # (L, D)
        rows = self._weights["clip_encoder.detector.name.weight"][list(candidates)]
        if self.settings.detector.tie_traces:
            shares: Floats = rows @ states.T / np.float32(len(states))
            return shares
        by_trace: Floats = np.einsum("kld,ld->kl", rows.reshape(len(rows), *states.shape), states)
        return by_trace

    @cached_property
    def _weights(self) -> Mapping[str, Array]:
        check_fit(self.run)
        return self.run.weights

    @cached_property
    def _encoder(self) -> Session:
        graph = graphs.clip_encoder(
            self._weights,
            grid=self.recipe.grid,
            has_video=self.settings.model.use_video,
            tie_traces=self.settings.detector.tie_traces,
            hidden_dim=self.settings.model.hidden_dim,
        )
        return Session(graph, on_gpu=True)

    @property
    def _embedding(self) -> Floats:
        """(words, E)."""
        return self._weights["clip_encoder.embedding.weight"]

    def _state(self, encoded: Mapping[str, Array], count: int) -> tuple[Floats, Floats]:
        """s_N, hidden states and cells; zeros if the model sees no video."""
        if "hidden" in encoded:
            return encoded["hidden"], encoded["cell"]
        nothing = np.zeros(self._state_shape(count), np.float32)
        return nothing, nothing

    def _state_shape(self, count: int) -> tuple[int, int, int]:
        return self.settings.model.num_layers, count, self.settings.model.hidden_dim

    def _embed_concepts(self, words: Ints, confidences: Floats) -> Floats:
        """Embeddings a_i of candidates (B, K) with confidences (B, K): (B, K, E)."""
        concepts: Floats = self._embedding[self._weights["clip_encoder.candidate_words"][words]]
        if self.settings.detector.confidence_weighted:
            concepts = concepts * confidences[..., None]
        concepts[confidences == 0] = 0
        return concepts

    def _top(self, scores: Floats, confidences: Floats) -> Ints:
        """The top K concept words (B, K) of scores (B, V), in order of rank: as `ClipEncoder.top`."""
        num_concepts = min(self.settings.detector.num_concepts, scores.shape[1])
        prior = self.prior
        if prior is None:
            return _highest(scores, num_concepts)
        lowest = np.float32(-self.settings.detector.prior_weight - 1)
        ranking = np.where(confidences == 0, lowest, confidences - prior)
        words = _highest(ranking, min(scores.shape[1], _FORMS * num_concepts))
        chosen = [_first_of_each(self._lemmas[row], num_concepts) for row in words]
        return np.take_along_axis(words, np.stack(chosen), axis=1)

    @cached_property
    def _lemmas(self) -> Ints:
        return np.array(self.concepts.lemma_ids, np.int64)


class _State(NamedTuple):
    """Hidden states and cells of the hypotheses of a search, both (layers, rows, D)."""

    hidden: Floats
    cell: Floats


class OnnxCaptioner(OnnxModel, Captioner):
    def steps(self, encoding: ClipEncoding) -> _CaptionSteps:
        return _CaptionSteps(self, encoding)

    def read_caption(self, words: WordIds, encoding: ClipEncoding) -> CaptionReading:
        state, related = _State(encoding.hidden, encoding.cell), self.related(encoding.concepts)
        steps = []
        for column in words.T:
            step = self.step(column[:, None], encoding.concepts, related, state)
            state = _State(step["next_hidden"], step["next_cell"])
            steps.append(step)
        scores = np.stack([step["log_probabilities"] for step in steps], axis=1)
        return CaptionReading(
            scores,
            *(
                np.concatenate([step[name] for step in steps], axis=1) if name in steps[0] else None
                for name in ("input_weights", "output_weights")
            ),
        )

    def related(self, concepts: Floats) -> Floats:
        """The output attention's projection of concept words (B, K, E), the same at every step."""
        return concepts if self._related is None else self._related({"concepts": concepts})["related"]

    def step(
        self,
        last: Ints,
        concepts: Floats,
        related: Floats,
        state: _State,
        outputs: Sequence[str] | None = None,
    ) -> dict[str, Array]:
        """One step: last words (B, W) of W hypotheses for each clip to the outputs of `caption_step`."""
        feed = {"words": self._embedding[last], "concepts": concepts, "related": related}
        return self._step(feed | state._asdict(), outputs)

    @cached_property
    def _step(self) -> Session:
        return Session(graphs.caption_step(self._weights, hidden_dim=self.settings.model.hidden_dim))

    @cached_property
    def _related(self) -> Session | None:
        attention = "decode.output_attention"
        if f"{attention}.gate" not in self._weights:
            return None
        return Session(graphs.related_concepts(self._weights, attention))


class _CaptionSteps:
    """A captioner as the `Steps` of `beam_search`, for encoded clips."""

    _OUTPUTS = ("log_probabilities", "next_hidden", "next_cell")

    def __init__(self, model: OnnxCaptioner, encoding: ClipEncoding) -> None:
        self._model, self._encoding = model, encoding
        self._related = model.related(encoding.concepts)
        self._of_clips = lru_cache(maxsize=1)(self._inputs)  # successive steps mostly search the same clips

    @property
    def num_clips(self) -> int:
        return len(self._encoding)

    def start(self) -> _State:
        return _State(self._encoding.hidden, self._encoding.cell)

    def next_words(self, last: Ints, state: _State, clips: tuple[int, ...]) -> tuple[Floats, _State]:
        concepts, related = self._of_clips(clips)
        words = last.reshape(len(clips), -1)
        step = self._model.step(words, concepts, related, state, self._OUTPUTS)
        return step["log_probabilities"], _State(step["next_hidden"], step["next_cell"])

    def select(self, state: _State, rows: Ints) -> _State:
        return _State(state.hidden[:, rows], state.cell[:, rows])

    def _inputs(self, clips: tuple[int, ...]) -> tuple[Floats, Floats]:
        rows = list(clips)
        return self._encoding.concepts[rows], self._related[rows]


class OnnxBlankFiller(OnnxModel, BlankFiller):
    def read_blanks(self, sentences: WordIds, blanks: Ints, encoding: ClipEncoding) -> BlankReading:
        feed = _read_with(self._embedding, sentences, encoding)
        read = self._reader(feed | {"blanks": blanks[:, None]})
        scores = read["scores"]
        scores[:, : len(SPECIALS)] = -np.inf
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        output_weights = read.get("output_weights")
        return BlankReading(
            shares / shares.sum(axis=1, keepdims=True),
            read.get("input_weights"),
            None if output_weights is None else output_weights[:, 0],
        )

    @cached_property
    def _reader(self) -> Session:
        return Session(graphs.blank_reader(self._weights, hidden_dim=self.settings.model.hidden_dim))


class OnnxScorer(OnnxModel, SentenceScorer):
    """The model of a run of `choose`. Sentences are read from the state of their clip."""

    def score_all(self, sentences: WordIds, encoding: ClipEncoding) -> Floats:
        plain = encoding.without_detection
        pairs = np.indices((len(sentences), len(encoding))).reshape(2, -1)
        scores = [
            self.score_each(sentences[rows], plain.of(clips))[0]
            for rows, clips in _blocks(pairs, _PAIRS_AT_ONCE)
        ]
        together: Floats = np.concatenate([np.zeros(0, np.float32), *scores])
        return together.reshape(len(sentences), len(encoding))

    def score_each(self, sentences: WordIds, encoding: ClipEncoding) -> tuple[Floats, Floats | None]:
        read = self._reader(_read_with(self._embedding, sentences, encoding))
        return read["scores"], read.get("input_weights")

    @property
    def score_scale(self) -> tuple[float, float]:
        return float(self._weights["score_mean"]), float(self._weights["score_scale"])

    @cached_property
    def _reader(self) -> Session:
        return Session(graphs.choice_reader(self._weights, hidden_dim=self.settings.model.hidden_dim))


class OnnxRetrieval(OnnxScorer):
    """The model of a run of `rank`. Queries are read from the zero state, then combined with the clip's."""

    def score_each(self, sentences: WordIds, encoding: ClipEncoding) -> tuple[Floats, Floats | None]:
        nothing = np.zeros(self._state_shape(len(sentences)), np.float32)
        query = replace(encoding, hidden=nothing, cell=nothing)
        read = self._reader(_read_with(self._embedding, sentences, query))
        sketches = self._sketches(encoding.hidden[-1], read["queries"])
        return self._scorer({"sketches": sketches})["scores"], read.get("input_weights")

    def _sketches(self, clips: Floats, queries: Floats) -> Floats:
        """Compact bilinear pooling ν of clips and queries, both (M, D), to (M, sketch)."""
        sketch_dim = self.settings.retrieval.sketch_dim
        transforms = []
        for side, vectors in (("first", clips), ("second", queries)):
            places, signs = self._weights[f"pool.{side}_hash"], self._weights[f"pool.{side}_sign"]
            sums = np.zeros((sketch_dim, len(vectors)), np.float32)
            np.add.at(sums, places, (vectors * signs).T)
            transforms.append(np.fft.rfft(sums.T))
        sketches = np.fft.irfft(transforms[0] * transforms[1], n=sketch_dim)
        return sketches.astype(np.float32, copy=False)

    @cached_property
    def _reader(self) -> Session:
        return Session(graphs.query_reader(self._weights, hidden_dim=self.settings.model.hidden_dim))

    @cached_property
    def _scorer(self) -> Session:
        pieces = len(self._weights["join.weight"]) // self.settings.retrieval.joint_dim
        return Session(graphs.joint_scorer(self._weights, pieces=pieces))


class OnnxJointEmbedding(OnnxScorer, JointEmbedding):
    @property
    def prior(self) -> Floats | None:
        return None

    @property
    def joint_dim(self) -> int:
        return len(self._weights["from_clip.bias"])

    def embed_clips(self, encoding: ClipEncoding) -> Floats:
        return self._clip_embedder({"pooled": encoding.hidden[-1]})["embedded"]

    def embed_sentences(self, sentences: WordIds) -> Floats:
        logits = np.where(sentences == PAD, -np.inf, self._weights["weigh.weight"][sentences, 0])
        feed = {"words": self._embedding[sentences], "logits": logits.astype(np.float32)[:, None]}
        return self._sentence_embedder(feed)["embedded"]

    def score_all(self, sentences: WordIds, encoding: ClipEncoding) -> Floats:
        scores: Floats = self.embed_sentences(sentences) @ self.embed_clips(encoding).T
        return scores

    def score_each(self, sentences: WordIds, encoding: ClipEncoding) -> tuple[Floats, Floats | None]:
        return (self.embed_sentences(sentences) * self.embed_clips(encoding)).sum(axis=1), None

    def expected_cider(self, sentences: WordIds, encoding: ClipEncoding) -> Floats | None:
        if "phrases.keys" not in self._weights:
            return None
        clip_weights = self._phrase_weights({"pooled": encoding.hidden[-1]})["weights"]
        return expected_cider(sentences, clip_weights, self._weights)

    @property
    def match_accuracy(self) -> float:
        return float(self._weights["match_accuracy"])

    def match_score(self, num_clips: int) -> float:
        threshold, growth, clips = (
            float(self._weights[f"match_{name}"]) for name in ("threshold", "growth", "clips")
        )
        return threshold + growth * math.log(max(num_clips, 1) / max(clips, 1.0))

    def _state(self, encoded: Mapping[str, Array], count: int) -> tuple[Floats, Floats]:  # noqa: ARG002  # not asked
        pooled = encoded["pooled"][None]
        return pooled, pooled

    @cached_property
    def _encoder(self) -> Session:
        return self._session(graphs.mean_pooling)

    @cached_property
    def _clip_embedder(self) -> Session:
        return self._session(graphs.clip_embedder)

    @cached_property
    def _sentence_embedder(self) -> Session:
        return self._session(graphs.sentence_embedder)

    @cached_property
    def _phrase_weights(self) -> Session:
        return self._session(graphs.phrase_weights)

    def _session(self, graph: Callable[[Mapping[str, Array]], Graph]) -> Session:
        return Session(graph(self._weights))


def _padded(clips: Sequence[Maps]) -> tuple[Floats, NDArray[np.bool_]]:
    """Maps (frames, h, w, C) of several clips as (B, N, h, w, C), and which frames are real (B, N)."""
    longest = max(len(maps) for maps in clips)
    padded = np.zeros((len(clips), longest, *clips[0].shape[1:]), np.float32)
    is_real = np.zeros((len(clips), longest), np.bool_)
    for row, maps in enumerate(clips):
        padded[row, : len(maps)] = maps
        is_real[row, : len(maps)] = True
    return padded, is_real


def _read_with(embedding: Floats, sentences: WordIds, encoding: ClipEncoding) -> dict[str, Array]:
    """Sentences (M, T), padded, and the clips in their rows, as inputs of a reader."""
    return {
        "words": embedding[sentences],
        "is_real": sentences != PAD,
        "concepts": encoding.concepts,
        "hidden": encoding.hidden,
        "cell": encoding.cell,
    }


def _blocks(pairs: Ints, size: int) -> Iterator[Ints]:
    for start in range(0, pairs.shape[1], size):
        yield pairs[:, start : start + size]


def _sigmoid(x: Floats) -> Floats:
    with np.errstate(over="ignore"):  # 1 / inf is 0, as it should be
        return np.float32(1) / (np.float32(1) + np.exp(-x))


def _highest(scores: Floats, count: int) -> Ints:
    """Places of the `count` highest scores of each row, best first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


def _first_of_each(lemmas: Ints, count: int) -> Ints:
    """The first `count` places whose lemma has not been there before, then those where it has."""
    _, first = np.unique(lemmas, return_index=True)
    is_form = np.ones(len(lemmas), np.bool_)
    is_form[first] = False
    return np.argsort(is_form, kind="stable")[:count]
