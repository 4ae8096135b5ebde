"""Arrays stored for each shot, and the query vector they are compared with.

vectors                  searched by the first stage: joint embeddings, then a sketch of the concept words
concepts, confidences    the top concept words, averaged over the runs with a detector
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from ctsan.inference.ensemble import concepts_seen, runs_covering_query
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.runs.trained_run import TrainedRun
from ctsan.tasks.scoring import encode_sentences
from ctsan.text.tokens import tokenize

Vector = NDArray[np.float32]

ARRAY_NAMES = ("vectors", "concepts", "confidences")

_SKETCH_DIM = 64
_SKETCH_WEIGHT = 0.15  # relative to the cosine of the joint embeddings
_NO_CONCEPT = -1  # pads rows with fewer concept words than columns


def concept_words(runs: Sequence[TrainedRun]) -> list[str]:
    """The concept vocabularies of all runs with a detector, merged."""
    detecting = [run for run in runs if run.loaded.model.clip_encoder.detector is not None]
    return list(dict.fromkeys(word for run in detecting for word in run.loaded.words.concepts.words))


@torch.inference_mode()
def shot_arrays(
    runs: Sequence[TrainedRun], encodings: Sequence[ClipEncoding], words: Sequence[str]
) -> dict[str, NDArray[np.generic]]:
    """The arrays to store for a batch of shots, one row each, by the names in `ARRAY_NAMES`.

    Args:
        encodings: one per run.
        words: the output of `concept_words`.
    """
    word_ids = {word: word_id for word_id, word in enumerate(words)}
    num_shots = len(encodings[0].concepts)
    num_columns = max(encoding.concept_words.shape[1] for encoding in encodings)
    concepts = np.full((num_shots, num_columns), _NO_CONCEPT, np.int32)
    confidences = np.zeros((num_shots, num_columns), np.float16)
    sketches = []
    for row in range(num_shots):
        detected = concepts_seen(runs, encodings, row)
        concepts[row, : len(detected)] = [word_ids[concept.word] for concept in detected]
        confidences[row, : len(detected)] = [concept.confidence for concept in detected]
        sketches.append(sketch({concept.word: concept.confidence for concept in detected}))
    joint = embed_clips(runs, encodings)
    return {
        "vectors": np.concatenate([joint, np.stack(sketches)], axis=1).astype(np.float16),
        "concepts": concepts,
        "confidences": confidences,
    }


def embed_clips(runs: Sequence[TrainedRun], encodings: Sequence[ClipEncoding]) -> Vector:
    """Concatenated joint embeddings. The inner product with `embed_query` is the runs' mean cosine."""
    embeddings = [
        run.loaded.model.embed_clips(encoding)
        for run, encoding in zip(runs, encodings, strict=True)
        if run.task == "embed"
    ]
    joint: Vector = torch.cat(embeddings, dim=1).float().cpu().numpy()
    return joint / np.float32(len(embeddings) ** 0.5)


def embed_runs_covering_query(runs: Sequence[TrainedRun], query: str) -> list[TrainedRun]:
    """The 'embed' runs whose vocabulary covers the query."""
    return runs_covering_query([run for run in runs if run.task == "embed"], query)


@torch.inference_mode()
def embed_query(runs: Sequence[TrainedRun], query: str) -> Vector:
    """Concatenated joint embeddings of a query.

    Runs whose vocabulary does not cover the query contribute zeros; the others are scaled up to compensate.
    """
    covering = embed_runs_covering_query(runs, query)
    embeddings = []
    for run in runs:
        if run.task == "embed":
            loaded = run.loaded
            words = encode_sentences([query], loaded.words.vocabulary, max_words=loaded.max_words)
            device = loaded.model.clip_encoder.candidate_words.device
            embeddings.append(loaded.model.embed_sentences(words.to(device)) * (run in covering))
    joint: Vector = torch.cat(embeddings, dim=1)[0].float().cpu().numpy()
    return joint * np.float32(len(embeddings) ** 0.5 / len(covering))


def query_vector(runs: Sequence[TrainedRun], query: str, words: Sequence[str]) -> Vector:
    """The vector that the first stage compares with the stored `vectors`."""
    query_concepts = sorted(set(tokenize(query)) & set(words))
    weight = max(len(query_concepts), 1) ** -0.5
    return np.concatenate([embed_query(runs, query), sketch(dict.fromkeys(query_concepts, weight))])


def sketch(words: Mapping[str, float]) -> Vector:
    """Project weighted words onto `_SKETCH_DIM` dimensions; inner products are approximately preserved."""
    total = np.zeros(_SKETCH_DIM, np.float32)
    for word, weight in words.items():
        total += np.float32(weight) * _direction(word)
    return total * np.float32(_SKETCH_WEIGHT**0.5)


@cache
def _direction(word: str) -> Vector:
    """A unit vector of pseudo-random signs, derived from the word; two words are nearly orthogonal."""
    digest = hashlib.shake_256(word.encode(errors="surrogatepass")).digest(_SKETCH_DIM // 8)
    signs = np.unpackbits(np.frombuffer(digest, np.uint8)).astype(np.float32) * 2 - 1
    return signs / np.float32(_SKETCH_DIM**0.5)
