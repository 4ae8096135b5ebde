"""Everything that is learnt of words before a model is trained: vocabulary, concept candidates, embedding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np

from ctsan.text.concepts import Concepts
from ctsan.text.embedding import Embedding, learn_embedding, load_embedding, save_embedding
from ctsan.text.files import problem_with
from ctsan.text.known_vectors import read_vectors
from ctsan.text.tagging import load_tagger
from ctsan.text.tokens import tokenize
from ctsan.text.vocabulary import SPECIALS, Vocabulary

VOCABULARY_FILE = "vocabulary.json"
CONCEPTS_FILE = "concepts.json"
EMBEDDING_FILE = "embedding.safetensors"

Progress = Callable[[str, int, int], None]  # what is being done, how much of it is done, how much there is


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no plain equality
class Words:
    vocabulary: Vocabulary
    concepts: Concepts
    embedding: Embedding  # (V, E), a row for each word of the vocabulary

    def extended_by(self, new: Words) -> Words:
        """These words in their places, and after them those of another corpus that are not among them."""
        counted = zip(new.vocabulary.words, new.vocabulary.counts, strict=True)
        added = {word: count for word, count in counted if word not in self.vocabulary}
        looked_for = frozenset(self.concepts.words)
        candidates = (concept for concept in new.concepts.candidates if concept.word not in looked_for)
        lemmas = {concept.word: concept.lemma for concept in new.concepts.candidates}
        known = (  # words of an older version have no lemma
            concept if concept.lemma else replace(concept, lemma=lemmas.get(concept.word, ""))
            for concept in self.concepts.candidates
        )
        return Words(
            Vocabulary((*self.vocabulary.words, *added), (*self.vocabulary.counts, *added.values())),
            Concepts((*known, *candidates)),
            np.concatenate([self.embedding, self._vectors_of(list(added), new)]),
        )

    def with_vectors_of(self, other: Words) -> Words:
        """These words with the vectors of another corpus; those of words that it lacks are brought over."""
        both = other.extended_by(self)
        return replace(self, embedding=both.embedding[both.vocabulary.encode(self.vocabulary.words)])

    def _vectors_of(self, added: list[str], new: Words) -> Embedding:
        """Vectors of another corpus' words, brought over to lie among these.

        Each embedding is learnt from nothing, so its directions mean nothing in another one. The words that
        both know tell how to turn it: by the rotation that brings them closest to themselves (orthogonal
        Procrustes). As a whole they then have the length that they have here.
        """
        both = [word for word in new.vocabulary.words[len(SPECIALS) :] if word in self.vocabulary]
        here = self.embedding[self.vocabulary.encode(both)].astype(np.float64)  # (both, E)
        there = new.embedding[new.vocabulary.encode(both)].astype(np.float64)
        left, _, right = np.linalg.svd(there.T @ here)
        scale = np.linalg.norm(here) / np.linalg.norm(there) if both else 1.0
        vectors: Embedding = new.embedding[new.vocabulary.encode(added)] @ (scale * left @ right)
        return vectors.astype(np.float32)

    def save(self, folder: Path) -> None:
        """Write the three files into a folder, made if need be; saving twice gives the same bytes."""
        self.vocabulary.save(folder / VOCABULARY_FILE)
        self.concepts.save(folder / CONCEPTS_FILE)
        save_embedding(folder / EMBEDDING_FILE, self.embedding, self.vocabulary)

    @classmethod
    def load(cls, folder: Path, *, embedding: Embedding | None = None) -> Self:
        """Read what `save` wrote.

        Args:
            embedding: to take in place of the folder's, which then need not be there.

        Raises:
            WordsError: files are missing or damaged, or do not belong together.
        """
        names = [VOCABULARY_FILE, CONCEPTS_FILE, *([EMBEDDING_FILE] if embedding is None else [])]
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise problem_with(folder, f"it does not hold {' or '.join(missing)}")
        vocabulary = Vocabulary.load(folder / VOCABULARY_FILE)
        concepts = Concepts.load(folder / CONCEPTS_FILE)
        if strange := [word for word in concepts.words if word not in vocabulary]:
            what = f"{len(strange)} candidates, such as {strange[0]!r}, are not in {VOCABULARY_FILE}"
            raise problem_with(folder / CONCEPTS_FILE, what)
        if embedding is None:
            embedding = load_embedding(folder / EMBEDDING_FILE, vocabulary)
        return cls(vocabulary, concepts, embedding)


def prepare_words(
    captions: Iterable[str],
    *,
    num_concepts: int = 2000,
    min_count: int = 4,
    embedding_dim: int = 300,
    seed: int = 0,
    vectors: Path | None = None,
    extra_vocabulary: int = 0,
    progress: Progress | None = None,
) -> Words:
    """Learn the words of a corpus from its training captions, and from vectors, if any are named.

    Captions of the other splits must not be given: a model would then know words, and how they are used, from
    the sentences that it is measured on.

    Args:
        vectors: a file of word vectors: see `read_vectors`.
        extra_vocabulary: so many others of that file are known too, for queries that hold them.

    Raises:
        UsageError: no word is seen `min_count` times, or the vectors are too long.
        WordsError: the file of vectors cannot be used.
    """
    sentences = [tokenize(caption) for caption in captions]
    vocabulary = Vocabulary.build(sentences, min_count=min_count)
    known = read_vectors(vectors, vocabulary.words, more=extra_vocabulary) if vectors else None
    concepts = Concepts.build(
        sentences,
        vocabulary,
        load_tagger(),
        num_concepts=num_concepts,
        progress=partial(progress, "tagging sentences") if progress else None,
    )
    if progress:
        progress("learning the embedding", 0, 1)
    vocabulary = vocabulary.with_words(known or ())
    embedding = learn_embedding(sentences, vocabulary, dim=embedding_dim, seed=seed, vectors=known)
    if progress:
        progress("learning the embedding", 1, 1)
    return Words(vocabulary, concepts, embedding)
