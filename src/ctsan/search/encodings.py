"""Arrays stored for each shot, and the query vector that `vectors` are compared with.

vectors                  joint embeddings, which both stages of a search compare
concepts, confidences    the top concept words, averaged over the models with a detector
candidates, candidate_confidences    the surest of all concept words: see candidates.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ctsan.inference.ensemble import covers_query, detected_concepts, word_ids
from ctsan.inference.loaded_model import Captioner, ClipEncoding, JointEmbedding, LoadedModel
from ctsan.runs.trained_run import answering
from ctsan.search.candidates import concepts_to_candidates

if TYPE_CHECKING:
    from ctsan.inference.encoded_clip import EncodedClip

Vector = NDArray[np.float32]

_NO_CONCEPT = -1  # pads rows with fewer concept words than columns


def concept_words(models: Sequence[LoadedModel]) -> list[str]:
    """The concept vocabularies of all models with a detector, merged."""
    detecting = [model for model in models if model.has_detector]
    return list(dict.fromkeys(word for model in detecting for word in model.concepts.words))


def joint_embeddings(models: Sequence[LoadedModel]) -> list[JointEmbedding]:
    return [model for model in models if isinstance(model, JointEmbedding)]


def vector_dim(models: Sequence[LoadedModel]) -> int:
    """The number of columns of `vectors`."""
    return sum(model.joint_dim for model in joint_embeddings(models))


def shot_arrays(
    models: Sequence[LoadedModel], shots: Sequence[EncodedClip], words: Sequence[str]
) -> dict[str, NDArray[np.generic]]:
    """The arrays to store for a batch of shots, one row each, by the names in `library_format.ARRAY_NAMES`.

    Args:
        words: the output of `concept_words`.
    """
    from ctsan.inference.encoded_clip import encode_together  # not at the top: queries decode no clip

    encodings = [encode_together(shots, model) for model in models]
    ids = {word: word_id for word_id, word in enumerate(words)}
    num_columns = max(encoding.concept_words.shape[1] for encoding in encodings)
    concepts = np.full((len(shots), num_columns), _NO_CONCEPT, np.int32)
    confidences = np.zeros((len(shots), num_columns), np.float16)
    candidates = []
    for row, shot in enumerate(shots):
        shot_encodings = [shot.encoding(model) for model in models]
        detected = detected_concepts(models, shot_encodings)
        all_detected = detected_concepts(models, shot_encodings, all_candidates=True)
        candidates.append({concept.word: concept.confidence for concept in all_detected})
        concepts[row, : len(detected)] = [ids[concept.word] for concept in detected]
        confidences[row, : len(detected)] = [concept.confidence for concept in detected]
    return {
        "vectors": embed_clips(models, encodings).astype(np.float16),
        "concepts": concepts,
        "confidences": confidences,
        **concepts_to_candidates(candidates, words),
    }


def shot_captions(models: Sequence[LoadedModel], shots: Sequence[EncodedClip]) -> list[str | None]:
    """A caption of each shot, as `ctsan describe` gives it; None if no model describes, or finds no words."""
    from ctsan.inference.captioning import caption_together

    if not any(isinstance(model, Captioner) for model in models):
        return [None] * len(shots)
    hypotheses = caption_together(answering(models, "describe"), shots)
    return [best[0].text if best else None for best in hypotheses]


def embed_clips(models: Sequence[LoadedModel], encodings: Sequence[ClipEncoding]) -> Vector:
    """Concatenated joint embeddings. The inner product with `embed_query` is the models' mean cosine."""
    embeddings = [
        model.embed_clips(encoding)
        for model, encoding in zip(models, encodings, strict=True)
        if isinstance(model, JointEmbedding)
    ]
    joint: Vector = np.concatenate(embeddings, axis=1)
    return joint / np.float32(len(embeddings) ** 0.5)


def embed_query(models: Sequence[LoadedModel], query: str) -> Vector:
    """Concatenated joint embeddings of a query.

    Models whose vocabulary does not cover the query contribute zeros; the others are scaled up to
    compensate.
    """
    embeddings = joint_embeddings(models)
    covers = covers_query(embeddings, [query])[:, 0]
    parts = [
        model.embed_sentences(word_ids(model, [query]))[0] * np.float32(is_covered)
        for model, is_covered in zip(embeddings, covers, strict=True)
    ]
    joint: Vector = np.concatenate(parts)
    return joint * np.float32(len(embeddings) ** 0.5 / covers.sum())
