"""What runs make of a shot, as rows of numbers.

vectors                  what the first stage compares: joint embeddings, then a sketch of the concept words
concepts, confidences    the first concept words, as the runs with a detector see them together
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

KINDS = ("vectors", "concepts", "confidences")  # of numbers

_SKETCH_DIM = 64
_SKETCH_WEIGHT = 0.15  # of concept words beside the joint embedding's cosine
_NONE = -1  # where there are fewer concept words than places for them


def concept_words(runs: Sequence[TrainedRun]) -> list[str]:
    """All words that any of the runs looks for."""
    able = [run for run in runs if run.member.model.clip_encoder.detector is not None]
    return list(dict.fromkeys(word for run in able for word in run.member.words.concepts.words))


@torch.inference_mode()
def numbers_of(
    runs: Sequence[TrainedRun], encodings: Sequence[ClipEncoding], words: Sequence[str]
) -> dict[str, NDArray[np.generic]]:
    """The numbers of shots, a row each.

    Args:
        encodings: of each run.
        words: what `concept_words` gave.
    """
    places = {word: place for place, word in enumerate(words)}
    count = len(encodings[0].concepts)
    most = max(encoding.concept_words.shape[1] for encoding in encodings)
    concepts = np.full((count, most), _NONE, np.int32)
    confidences = np.zeros((count, most), np.float16)
    vectors = []
    for row in range(count):
        seen = concepts_seen(runs, encodings, row)
        concepts[row, : len(seen)] = [places[each.word] for each in seen]
        confidences[row, : len(seen)] = [each.confidence for each in seen]
        vectors.append(sketch({each.word: each.confidence for each in seen}))
    joint = embedded_clips(runs, encodings)
    return {
        "vectors": np.concatenate([joint, np.stack(vectors)], axis=1).astype(np.float16),
        "concepts": concepts,
        "confidences": confidences,
    }


def embedded_clips(runs: Sequence[TrainedRun], encodings: Sequence[ClipEncoding]) -> Vector:
    """The joint embeddings of clips; products with `embedded_query` are means of the runs' cosines."""
    own = [
        run.member.model.embed_clips(encoding)
        for run, encoding in zip(runs, encodings, strict=True)
        if run.task == "embed"
    ]
    joint: Vector = torch.cat(own, dim=1).float().cpu().numpy()
    return joint / np.float32(len(own) ** 0.5)


def covering_embeddings(runs: Sequence[TrainedRun], query: str) -> list[TrainedRun]:
    """The joint embeddings that know the query's words."""
    return runs_covering_query([run for run in runs if run.task == "embed"], query)


@torch.inference_mode()
def embedded_query(runs: Sequence[TrainedRun], query: str) -> Vector:
    """Zeros stand for the runs that do not know the query's words, and the others count the more."""
    heard = covering_embeddings(runs, query)
    own = []
    for run in runs:
        if run.task == "embed":
            member = run.member
            words = encode_sentences([query], member.words.vocabulary, max_words=member.max_words)
            device = member.model.clip_encoder.candidate_words.device
            own.append(member.model.embed_sentences(words.to(device)) * (run in heard))
    joint: Vector = torch.cat(own, dim=1)[0].float().cpu().numpy()
    return joint * np.float32(len(own) ** 0.5 / len(heard))


def query_vector(runs: Sequence[TrainedRun], query: str, words: Sequence[str]) -> Vector:
    """What the first stage compares with the clips' vectors."""
    said = sorted(set(tokenize(query)) & set(words))
    return np.concatenate(
        [embedded_query(runs, query), sketch(dict.fromkeys(said, max(len(said), 1) ** -0.5))]
    )


def sketch(words: Mapping[str, float]) -> Vector:
    """Weighted words in a few numbers: two sketches have a large product where their words are the same."""
    total = np.zeros(_SKETCH_DIM, np.float32)
    for word, weight in words.items():
        total += np.float32(weight) * _direction(word)
    return total * np.float32(_SKETCH_WEIGHT**0.5)


@cache
def _direction(word: str) -> Vector:
    """A direction of the word's own, of length one; others are nearly at right angles to it."""
    digest = hashlib.shake_256(word.encode(errors="surrogatepass")).digest(_SKETCH_DIM // 8)
    signs = np.unpackbits(np.frombuffer(digest, np.uint8)).astype(np.float32) * 2 - 1
    return signs / np.float32(_SKETCH_DIM**0.5)
